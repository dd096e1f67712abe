package org.apache.spark.sql.tailrace

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerStageSubmitted, SparkListenerTaskStart}
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, State, StreamExecution, StreamingQueryWrapper, TERMINATED}
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * Ends a query after its current batch and the checkpoint of that batch.
 *
 * Spark's own `stop` cancels the batch, so the next start processes its records again. Spark's loop checks the state of the
 * query, which has no setter, before each batch, and again after planning one, when it interrupts itself. So the state may
 * change only while the tasks of a batch run. This listener knows when they run.
 */
class BatchWatch(context: SparkContext, query: StreamingQuery) extends SparkListener {
  private val batchOfStage = new ConcurrentHashMap[Int, Long]()
  @volatile private var running = -1L

  override def onStageSubmitted(submitted: SparkListenerStageSubmitted): Unit =
    Option(submitted.properties).foreach { properties =>
      if (properties.getProperty(StreamExecution.QUERY_ID_KEY) == query.id.toString) {
        Option(properties.getProperty(MicroBatchExecution.BATCH_ID_KEY)).flatMap(_.toLongOption).foreach { batch =>
          batchOfStage.put(submitted.stageInfo.stageId, batch)
        }
      }
    }

  override def onTaskStart(start: SparkListenerTaskStart): Unit =
    if (batchOfStage.containsKey(start.stageId)) running = Math.max(running, batchOfStage.get(start.stageId))

  /** End the query after the running batch if it comes after the given one; return whether the query will end. */
  def endAfter(completed: Long): Boolean = {
    if (running > completed) {
      state.set(TERMINATED)
      true
    } else {
      false
    }
  }

  /** Whether the query has ended. Spark reports it as inactive as soon as its state changes. */
  def hasEnded: Boolean = !execution.queryExecutionThread.isAlive

  def open(): Unit = context.addSparkListener(this)

  def close(): Unit = context.removeSparkListener(this)

  private def state: AtomicReference[State] = {
    val field = classOf[StreamExecution].getDeclaredField("state")
    field.setAccessible(true)
    field.get(execution).asInstanceOf[AtomicReference[State]]
  }

  private def execution: StreamExecution = query match {
    case wrapper: StreamingQueryWrapper => wrapper.streamingQuery
    case other => throw new IllegalArgumentException(s"not a query of this process: ${other.getClass.getName}")
  }
}
