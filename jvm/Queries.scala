package org.apache.spark.sql.tailrace

import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.sql.execution.streaming.runtime.{State, StreamExecution, StreamingQueryWrapper, TERMINATED}
import org.apache.spark.sql.streaming.StreamingQuery

/** What a running query can be asked for beyond Spark's own interface. */
object Queries {

  /**
   * Let the query complete the batch it is in, with its checkpoint, and then end.
   *
   * Spark's own `stop` cancels the batch, so that its records are processed again at the next start. The loop of a
   * query looks at this field, which has no setter, before each batch.
   */
  def endAfterBatch(query: StreamingQuery): Unit = query match {
    case wrapper: StreamingQueryWrapper =>
      val field = classOf[StreamExecution].getDeclaredField("state")
      field.setAccessible(true)
      field.get(wrapper.streamingQuery).asInstanceOf[AtomicReference[State]].set(TERMINATED)
    case other => throw new IllegalArgumentException(s"not a query of this process: ${other.getClass.getName}")
  }
}
