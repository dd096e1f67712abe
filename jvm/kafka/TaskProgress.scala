package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.TaskContext

/**
 * Records that a reader passes on one after the other. It counts who still holds rows of theirs: the reader, the queues of
 * Python functions, and results and dead letters without an acknowledgement. Whoever takes a row over holds the span before
 * the one who had it releases it. So a span that nobody holds is done, and stays so.
 */
private[sql] sealed trait Span {
  def hold(): Unit
  def release(): Unit
}

/** The span of rows whose record is not known, such as those of a shuffle. */
private[sql] object Untraced extends Span {
  override def hold(): Unit = ()
  override def release(): Unit = ()
}

/** Which span the rows belong to that a thread works on. Only that thread uses it. */
private[sql] final class Flow {
  private var span: Span = Untraced

  /** Make this the current thread's. */
  def enter(): Unit = Flow.ofThread.set(this)

  /** Work on a row of a span that is held for this; the row before is done. */
  def begin(next: Span): Unit = {
    val before = span
    span = next
    before.release()
  }

  /** The last row is done. */
  def end(): Unit = begin(Untraced)
}

private[sql] object Flow {
  private val ofThread = new ThreadLocal[Flow]

  /** The span of the row that the current thread works on. */
  def span: Span = {
    val flow = ofThread.get
    if (flow == null) Untraced else flow.span
  }

  /** Hold and return the span of the row that the current thread works on. */
  def hold(): Span = {
    val its = span
    its.hold()
    its
  }

  private[tailrace] def leave(): Unit = ofThread.remove()
}

/** What is known of how an attempt of a task treats its rows. */
private[sql] final class TaskProgress private {
  @volatile private var isAcknowledged = false
  @volatile private var isBlocked = false

  /** Note that the rows of this task end in a sink that holds their spans until they are acknowledged. */
  def acknowledge(): Unit = isAcknowledged = true

  /** Note that an operator of this task does not tell which records its rows come from. */
  def block(): Unit = isBlocked = true

  private[tailrace] def isTraceable: Boolean = !isBlocked

  private[tailrace] def isTraced: Boolean = isAcknowledged && !isBlocked
}

private[sql] object TaskProgress {
  private val attempts = new ConcurrentHashMap[Long, TaskProgress]()

  /** The progress of a task that runs. */
  def of(context: TaskContext): TaskProgress = {
    val attempt = context.taskAttemptId()
    val own = new TaskProgress
    Option(attempts.putIfAbsent(attempt, own)).getOrElse {
      context.addTaskCompletionListener[Unit] { _ => // at once, if the task has just ended
        attempts.remove(attempt)
        Flow.leave() // the thread goes on to other tasks
      }
      own
    }
  }
}

/**
 * Up to where all results and dead letters of a reader's records are acknowledged.
 *
 * The reader begins a new span each time when it asks Kafka for records, and at least several times a second. By then all
 * records that it has passed on are in the hands of others.
 *
 * @param start the offset of the first record of each partition
 */
private[tailrace] final class ReaderProgress(task: TaskProgress, start: Array[Long]) {
  import ReaderProgress._

  private val first = new ReadSpan(start.clone())
  private val flow = new Flow
  flow.begin(first)
  private var thread: Thread = _
  private var newest = first
  private var begunNs = 0L

  /** The first span that is not done, or one before it. */
  @volatile private var oldest = first

  /** Begin a new span if this one has lasted for long. From the thread that asks the reader for the next record. */
  def asked(nowNs: Long, nextOffsets: Array[Long]): Unit = {
    if (thread ne Thread.currentThread()) {
      thread = Thread.currentThread()
      flow.enter()
    }
    if (nowNs - begunNs >= LongestNs) cut(nowNs, nextOffsets)
  }

  /** Begin a new span: all records before these offsets have been passed on, and the next one is asked for. */
  def cut(nowNs: Long, nextOffsets: Array[Long]): Unit = {
    begunNs = nowNs
    if (task.isTraceable && !ju.Arrays.equals(newest.start, nextOffsets)) {
      val next = new ReadSpan(nextOffsets.clone())
      newest.next = next // before it can be done
      newest = next
      flow.begin(next)
      notDone()
    }
  }

  /** The offset in each partition before which everything is acknowledged. From any thread. */
  def safe: Array[Long] = if (task.isTraced) notDone().start else first.start

  private def notDone(): ReadSpan = {
    var span = oldest
    while (span.isDone) span = span.next
    oldest = span // another thread may set it back, to a span that is done
    span
  }
}

private[tailrace] object ReaderProgress {
  private val LongestNs = 100000000L

  /** @param start the offset of its first record in each partition */
  private final class ReadSpan(val start: Array[Long]) extends Span {
    private val holders = new AtomicInteger(1) // the reader

    @volatile var next: ReadSpan = _

    override def hold(): Unit = holders.incrementAndGet()

    override def release(): Unit = holders.decrementAndGet()

    def isDone: Boolean = holders.get == 0
  }
}
