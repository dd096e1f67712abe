package org.apache.spark.sql.kafka010.tailrace

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.kafka.common.TopicPartition

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcAddress, RpcCallContext, RpcEndpointRef, RpcEnv, RpcTimeout, ThreadSafeRpcEndpoint}
import org.apache.spark.util.{RpcUtils, ThreadUtils, Utils}

/** The readers of this process, so that a request to end their batch reaches them at once. */
private[tailrace] object OpenReaders {
  private val readers = ConcurrentHashMap.newKeySet[RealTimeReader]()

  /** Add a reader, and end it if its batch has been ended already. */
  def open(reader: RealTimeReader, opened: ReaderOpened): ReaderStart = {
    readers.add(reader) // before the question: a request in between finds it here
    try {
      val start = RunChannel.readerOpened(opened)
      if (start.isEnded) reader.end()
      start
    } catch {
      case failed: Throwable =>
        readers.remove(reader)
        throw failed
    }
  }

  def close(reader: RealTimeReader, closed: ReaderClosed): Unit = if (readers.remove(reader)) RunChannel.readerClosed(closed)

  /** What the readers have read, by run and batch. */
  def reports: Seq[ReadersReport] =
    readers.asScala.toSeq.filter(_.hasBegun).groupMap(reader => (reader.run, reader.batch))(_.positions).toSeq.map {
      case ((run, batch), positions) => ReadersReport(run, batch, positions.flatten)
    }

  def offsetsGone: Seq[OffsetsGone] = readers.asScala.toSeq.flatMap(_.offsetsGone)

  def end(run: String, batch: Long): Unit = readers.forEach { reader =>
    if (reader.run == run && reader.batch <= batch) reader.end()
  }
}

/** @param retry the id of the attempt, if others of its task have failed */
private[tailrace] case class ReaderOpened(
    run: String,
    batch: Long,
    source: Int,
    partitions: Seq[TopicPartition],
    retry: Option[Long]) {
  def isRetry: Boolean = retry.isDefined
}

/**
 * The reply to a reader: whether its batch has been ended, how far it must read even so, and where it begins if all before that is
 * done.
 */
private[tailrace] case class ReaderStart(isEnded: Boolean, readTo: Map[TopicPartition, Long], from: Map[TopicPartition, Long])

/** A message to the driver that needs no reply. */
private[tailrace] sealed trait Report extends Serializable
private[tailrace] case class ReaderClosed(run: String, batch: Long, positions: Seq[ReaderPosition]) extends Report

/** What the readers of a batch in one process have read. */
private[tailrace] case class ReadersReport(run: String, batch: Long, positions: Seq[ReaderPosition]) extends Report

/** A reader has passed records that are gone. */
private[tailrace] case class LossReport(run: String, lost: RecordsLost) extends Report

/** A reader has offsets that do not exist any more. It says so until its batch ends: a message may be lost. */
private[tailrace] case class OffsetsGone(run: String, batch: Long, source: Int, offsets: Seq[GoneOffset]) extends Report
private[tailrace] case class EndBatch(run: String, batch: Long)

/** The question what the readers of a run on an executor have read by now. */
private[tailrace] case class ReadersAsked(run: String)

/** A question of a task about the run's delivery. The driver's answer may take a while, and the task needs it. */
private[tailrace] sealed trait DeliveryQuestion extends Serializable {
  def delivery: String
}

/**
 * Which outputs of a partition's records, from an offset on, exist already.
 *
 * @param retry the id of the attempt, if others of its task have failed: it also asks for what those have written
 */
private[tailrace] case class GuardRequest(
    delivery: String,
    source: Int,
    topicPartition: TopicPartition,
    from: Long,
    retry: Option[Long]) extends DeliveryQuestion

/** The task is about to write to a topic. */
private[tailrace] case class TopicUse(delivery: String, topic: String) extends DeliveryQuestion

/**
 * A message between driver and executors, as bytes: an executor's RPC knows Spark's own classes only, not those of jars that
 * were added to the application, and it ends the executor when it meets one.
 */
private[tailrace] object Wire {
  def encode(message: Serializable): Array[Byte] = Utils.serialize(message)

  def decode[T](bytes: Array[Byte]): T = Utils.deserialize[T](bytes, getClass.getClassLoader)
}

/** An executor that reads, and the address from which it talks. */
private[tailrace] case class ExecutorLink(address: RpcAddress, readers: RpcEndpointRef)

/** How readers and the driver talk: in the driver's process by calls, from executors by Spark's RPC. */
private[tailrace] object RunChannel extends Logging {
  private val DriverName = "tailrace-runs"
  private val ExecutorName = "tailrace-readers"
  private val ReportEveryMs = 500L
  private val ReportTimeout = new RpcTimeout(2.seconds, "spark.tailrace.reports")
  private val MostAnswers = 8
  private val NotEnded = ReaderStart(isEnded = false, Map.empty, Map.empty)

  private lazy val answers =
    ExecutionContext.fromExecutorService(ThreadUtils.newDaemonCachedThreadPool("tailrace-answers", MostAnswers))
  private var driver: Option[(RpcEnv, DriverEndpoint)] = None
  private var executor: Option[ExecutorSide] = None

  /** The endpoint of an executor, and the driver's. */
  private final class ExecutorSide(val env: SparkEnv) {
    val driver: RpcEndpointRef = RpcUtils.makeDriverRef(DriverName, env.conf, env.rpcEnv)
    // Register after contacting the driver, which may fail, and under a fresh name.
    val self: RpcEndpointRef =
      env.rpcEnv.setupEndpoint(s"$ExecutorName-${UUID.randomUUID()}", new ExecutorEndpoint(env.rpcEnv))
    private val reports = ThreadUtils.newDaemonSingleThreadScheduledExecutor("tailrace-positions")
    reports.scheduleWithFixedDelay(() => report(), ReportEveryMs, ReportEveryMs, MILLISECONDS)

    /** Tell the driver what the readers here have read. */
    private def report(): Unit = Utils.tryLogNonFatalError {
      (OpenReaders.reports ++ OpenReaders.offsetsGone).foreach(each => driver.send(Wire.encode(each)))
    }
  }

  /** Let executors reach this driver. A local master has none. */
  def listen(context: SparkContext): Unit = synchronized {
    val rpc = context.env.rpcEnv
    if (!context.isLocal && !driver.exists(_._1 eq rpc)) {
      val endpoint = new DriverEndpoint(rpc)
      rpc.setupEndpoint(DriverName, endpoint)
      driver = Some((rpc, endpoint))
    }
  }

  def readerOpened(opened: ReaderOpened): ReaderStart =
    if (isDriver) onDriver(opened, None)
    else if (opened.isRetry) askStart(executorSide, opened) // it must know where to begin
    else asExecutor(NotEnded)(askStart(_, opened))

  private def askStart(side: ExecutorSide, opened: ReaderOpened): ReaderStart =
    Wire.decode[ReaderStart](side.driver.askSync[Array[Byte]]((Wire.encode(opened), side.self)))

  def readerClosed(closed: ReaderClosed): Unit =
    if (isDriver) RunControl.find(closed.run).foreach(_.readerClosed(closed))
    else asExecutor(())(_.driver.send(Wire.encode(closed)))

  def recordsLost(report: LossReport): Unit =
    if (isDriver) RunControl.find(report.run).foreach(_.note(report.lost.json(accepted = true)))
    else asExecutor(())(_.driver.send(Wire.encode(report)))

  def offsetsGone(gone: OffsetsGone): Unit =
    if (isDriver) RunControl.find(gone.run).foreach(_.doubt(gone))
    else asExecutor(())(_.driver.send(Wire.encode(gone)))

  /** Return which outputs exist. A task that cannot know it must not go on. */
  def guardPart(asked: GuardRequest): GuardPart =
    if (isDriver) {
      Await.result(whenKnown(asked), Duration.Inf)
      partOnDriver(asked)
    } else ask[GuardPart](asked)

  /** Let the driver note a topic, and wait for it. */
  def topicUsed(use: TopicUse): Unit =
    if (isDriver) deliveryOf(use).topicUsed(use.topic) else ask[java.lang.Boolean](use)

  private def ask[T](question: DeliveryQuestion): T =
    Wire.decode[T](executorSide.driver.askSync[Array[Byte]](Wire.encode(question)))

  private def answer(question: DeliveryQuestion): Serializable = question match {
    case asked: GuardRequest => partOnDriver(asked)
    case use: TopicUse =>
      deliveryOf(use).topicUsed(use.topic)
      java.lang.Boolean.TRUE
  }

  private def partOnDriver(asked: GuardRequest): GuardPart = {
    val part = deliveryOf(asked).guardPart(asked.source, asked.topicPartition)
    if (asked.from >= part.end) GuardPart.Empty else part
  }

  /** The moment when the answer to a question is known. */
  private def whenKnown(question: DeliveryQuestion): Future[Unit] = question match {
    case GuardRequest(_, source, topicPartition, _, Some(retry)) =>
      deliveryOf(question).retried(retry, Set((source, topicPartition)))
    case _ => Future.unit
  }

  private def deliveryOf(question: DeliveryQuestion): Delivery =
    Delivery.find(question.delivery).getOrElse(throw new IllegalStateException(s"delivery ${question.delivery} has ended"))

  /** Let the readers on an executor end a batch. */
  def end(executor: RpcEndpointRef, run: String, batch: Long): Unit = executor.send(Wire.encode(EndBatch(run, batch)))

  /** What the readers on executors have read by now; nothing of those that do not answer. */
  def reports(executors: Seq[RpcEndpointRef], run: String): Seq[ReadersReport] = {
    val asked = executors.map(each => Try(each.ask[Array[Byte]](Wire.encode(ReadersAsked(run)), ReportTimeout)))
    asked.flatMap { answer =>
      Try(Wire.decode[List[ReadersReport]](ReportTimeout.awaitResult(answer.get))).getOrElse(Nil)
    }
  }

  private def onDriver(opened: ReaderOpened, executor: Option[ExecutorLink]): ReaderStart =
    RunControl.find(opened.run).map(_.readerOpened(opened, executor)).getOrElse(NotEnded)

  private def isDriver: Boolean = SparkEnv.get.executorId == SparkContext.DRIVER_IDENTIFIER

  /** Without the driver an executor ends anyway; a reader must not fail before that. */
  private def asExecutor[T](otherwise: T)(work: ExecutorSide => T): T =
    try work(executorSide)
    catch {
      case NonFatal(failed) =>
        logWarning("The driver cannot be reached: it cannot end batches of this executor on request", failed)
        otherwise
    }

  private def executorSide: ExecutorSide = synchronized {
    val env = SparkEnv.get
    executor.filter(_.env eq env).getOrElse {
      val side = new ExecutorSide(env)
      executor = Some(side)
      side
    }
  }

  private class DriverEndpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
    override def receive: PartialFunction[Any, Unit] = { case bytes: Array[Byte] =>
      Wire.decode[Report](bytes) match {
        case closed: ReaderClosed => RunControl.find(closed.run).foreach(_.readerClosed(closed))
        case report: ReadersReport => RunControl.find(report.run).foreach(_.note(report))
        case gone: OffsetsGone => RunControl.find(gone.run).foreach(_.doubt(gone))
        case report: LossReport => RunControl.find(report.run).foreach(_.note(report.lost.json(accepted = true)))
      }
    }

    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
      case (bytes: Array[Byte], executor: RpcEndpointRef) =>
        val (opened, link) = (Wire.decode[ReaderOpened](bytes), ExecutorLink(context.senderAddress, executor))
        // A retry asks the run's delivery.
        if (opened.isRetry) Future(context.reply(Wire.encode(onDriver(opened, Some(link))))).failed.foreach(refuse(context, _))
        else context.reply(Wire.encode(onDriver(opened, Some(link))))
      case bytes: Array[Byte] =>
        val question = Wire.decode[DeliveryQuestion](bytes)
        val replied = Future(whenKnown(question)).flatten.map(_ => context.reply(Wire.encode(answer(question))))
        replied.failed.foreach(refuse(context, _))
    }

    /** The driver may ask a broker before it answers, and other messages must not wait. */
    private implicit def elsewhere: ExecutionContext = answers

    private def refuse(context: RpcCallContext, failed: Throwable): Unit =
      context.sendFailure(new IllegalStateException(failed.toString))

    override def onDisconnected(address: RpcAddress): Unit = RunControl.executorLost(address)
  }

  private class ExecutorEndpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
    override def receive: PartialFunction[Any, Unit] = { case bytes: Array[Byte] =>
      val end = Wire.decode[EndBatch](bytes)
      OpenReaders.end(end.run, end.batch)
    }

    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = { case bytes: Array[Byte] =>
      val asked = Wire.decode[ReadersAsked](bytes)
      context.reply(Wire.encode(OpenReaders.reports.filter(_.run == asked.run).toList))
    }
  }
}
