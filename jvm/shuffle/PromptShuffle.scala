package org.apache.spark.shuffle.streaming.tailrace

import org.apache.spark.TaskContext
import org.apache.spark.shuffle.{ShuffleHandle, ShuffleWriteMetricsReporter, ShuffleWriter}
import org.apache.spark.shuffle.streaming.{StreamingShuffleManager, StreamingShuffleWriter}

/** Spark's streaming shuffle with writers that send a row as soon as it is there, where rows come one by one. */
private[spark] class PromptShuffleManager extends StreamingShuffleManager {
  override def getWriter[K, V](
      handle: ShuffleHandle,
      mapId: Long,
      context: TaskContext,
      metrics: ShuffleWriteMetricsReporter): ShuffleWriter[K, V] = new PromptShuffleWriter[K, V](handle, mapId, context)
}

/**
 * Spark's own writer keeps a row in its buffer until a timer of a millisecond or more comes round. This one sends what is
 * in the buffers before it awaits the next row, unless it has just done so: then rows come quickly, and gather.
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

  /** Rows that come closer together than this share a message, as with Spark's own timer. */
  private val IntervalNs = 500000L
}
