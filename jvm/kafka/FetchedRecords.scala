package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import org.apache.kafka.clients.consumer.ConsumerRecord

/**
 * The records of a task that are fetched and not yet passed on, by the numbers of its partitions.
 *
 * The records of a partition keep their order. Of the partitions, those with few records come first: a backlog on one must not
 * delay the others. New records may be added at any time, so that those of the others need not wait until the backlog is read.
 */
private[tailrace] final class FetchedRecords(partitions: Int) {
  import FetchedRecords._

  private val lists = Array.fill(partitions)(new ju.ArrayDeque[ju.Iterator[Record]])
  private val counts = new Array[Int](partitions)
  private val bytes = new Array[Long](partitions)

  /** The partitions that have records, in the order in which they are passed on, and the next of them. */
  private var turns: Array[Int] = Array.empty
  private var turn = 0
  private var total = 0

  /** The partition of the last record. */
  var at = 0

  def isEmpty: Boolean = total == 0

  def isEmpty(partition: Int): Boolean = counts(partition) == 0

  /** Add what has been fetched after the records that are here. */
  def add(partition: Int, records: ju.List[Record]): Unit = if (!records.isEmpty) {
    lists(partition).add(records.iterator())
    counts(partition) += records.size
    total += records.size
    records.forEach(record => bytes(partition) += sizeOf(record))
  }

  /** Begin with the partitions that have the fewest records. */
  def order(): Unit = {
    turns = counts.indices.filter(counts(_) > 0).sortBy(counts(_)).toArray
    turn = 0
  }

  /** Remove and return the next record; there must be one. */
  def next(): Record = {
    while (counts(turns(turn)) == 0) turn += 1
    at = turns(turn)
    val its = lists(at)
    while (!its.peek().hasNext) its.poll()
    val record = its.peek().next()
    counts(at) -= 1
    total -= 1
    bytes(at) -= sizeOf(record)
    record
  }

  /** Forget the records of a partition. */
  def drop(partition: Int): Unit = {
    total -= counts(partition)
    counts(partition) = 0
    bytes(partition) = 0
    lists(partition).clear()
  }

  /**
   * Whether a partition has enough records until more of it are fetched.
   *
   * @param recordNs how long the query takes for a record
   */
  def hasEnough(partition: Int, recordNs: Long): Boolean = counts(partition) > 0 &&
    (bytes(partition) >= EnoughBytes || counts(partition).toLong * recordNs * turns.count(counts(_) > 0) >= EnoughNs)
}

private[tailrace] object FetchedRecords {
  type Record = ConsumerRecord[Array[Byte], Array[Byte]]

  /** `fetch.max.wait.ms` of a task with several partitions. */
  val LongestFetchMs = 100

  /**
   * How long the records of a partition should last while it is not fetched. When it is to be fetched again, a request for the
   * others may be at the broker, which holds it for [[LongestFetchMs]] if they have no records.
   */
  private val EnoughNs = 2L * LongestFetchMs * 1000000L
  private val EnoughBytes = 4L << 20

  def sizeOf(record: Record): Int = math.max(0, record.serializedKeySize) + math.max(0, record.serializedValueSize)
}
