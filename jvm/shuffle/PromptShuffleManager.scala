package org.apache.spark.shuffle.streaming.tailrace

import org.apache.spark.TaskContext
import org.apache.spark.shuffle.{ShuffleHandle, ShuffleWriteMetricsReporter, ShuffleWriter}
import org.apache.spark.shuffle.streaming.{StreamingShuffleManager, StreamingShuffleWriter}

/** Spark's streaming shuffle with a writer that sends single rows at once. */
private[spark] class PromptShuffleManager extends StreamingShuffleManager {
  override def getWriter[K, V](
      handle: ShuffleHandle,
      mapId: Long,
      context: TaskContext,
      metrics: ShuffleWriteMetricsReporter): ShuffleWriter[K, V] = new PromptShuffleWriter[K, V](handle, mapId, context)
}

/**
 * Sends the buffered rows before it waits for the next row.
 *
 * Spark's own writer buffers a row until its timer fires, after a millisecond or more. If this writer has just sent, rows
 * arrive quickly, and it buffers them.
 */
private[tailrace] class PromptShuffleWriter[K, V](handle: ShuffleHandle, mapId: Long, context: TaskContext)
    extends StreamingShuffleWriter[K, V](handle, mapId, context) {

  override def write(records: Iterator[Product2[K, V]]): Unit = super.write(new Iterator[Product2[K, V]] {
    private var sentNs = System.nanoTime()

    override def hasNext: Boolean = {
      val now = System.nanoTime()
      if (now - sentNs >= PromptShuffleWriter.IntervalNs) {
        shards.foreach(_.send())
        sentNs = now
      }
      records.hasNext
    }

    override def next(): Product2[K, V] = records.next()
  })
}

private[tailrace] object PromptShuffleWriter {

  /** Rows that arrive within this interval share a message, as with Spark's own timer. */
  private val IntervalNs = 500000L
}
