package org.apache.spark.sql.kafka010.tailrace

import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcAddress, RpcCallContext, RpcEndpointRef, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.util.RpcUtils

/** The readers of this process, so that a request to end their batch reaches them at once. */
private[tailrace] object OpenReaders {
  private val readers = ConcurrentHashMap.newKeySet[RealTimeReader]()

  /** Add a reader, and end it if its batch has been ended already. */
  def open(reader: RealTimeReader): Unit = {
    readers.add(reader) // before the question: a request in between finds it here
    if (RunChannel.readerOpened(reader.run, reader.batch, reader.isRetry)) reader.end()
  }

  def close(reader: RealTimeReader): Unit = if (readers.remove(reader)) RunChannel.readerClosed(reader.run, reader.batch)

  def end(run: String, batch: Long): Unit = readers.forEach { reader =>
    if (reader.run == run && reader.batch <= batch) reader.end()
  }
}

private[tailrace] case class ReaderOpened(run: String, batch: Long, isRetry: Boolean, executor: RpcEndpointRef)
private[tailrace] case class ReaderClosed(run: String, batch: Long)
private[tailrace] case class EndBatch(run: String, batch: Long)

/** How readers and the driver talk: in the driver's process by calls, from executors by Spark's RPC. */
private[tailrace] object RunChannel extends Logging {
  private val DriverName = "tailrace-runs"
  private val ExecutorName = "tailrace-readers"

  private var driver: Option[(RpcEnv, DriverEndpoint)] = None
  private var executor: Option[ExecutorSide] = None

  /** The endpoint of an executor and its way to the driver. */
  private final class ExecutorSide(val env: SparkEnv) {
    val self: RpcEndpointRef = env.rpcEnv.setupEndpoint(s"$ExecutorName-${env.executorId}", new ExecutorEndpoint(env.rpcEnv))
    val driver: RpcEndpointRef = RpcUtils.makeDriverRef(DriverName, env.conf, env.rpcEnv)
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

  /** Report that a reader begins; return whether its batch has been ended already. */
  def readerOpened(run: String, batch: Long, isRetry: Boolean): Boolean =
    if (isDriver) RunControl.find(run).exists(_.readerOpened(batch, isRetry, None))
    else asExecutor(false)(side => side.driver.askSync[Boolean](ReaderOpened(run, batch, isRetry, side.self)))

  def readerClosed(run: String, batch: Long): Unit =
    if (isDriver) RunControl.find(run).foreach(_.readerClosed(batch))
    else asExecutor(())(_.driver.send(ReaderClosed(run, batch)))

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
    override def receive: PartialFunction[Any, Unit] = { case ReaderClosed(run, batch) =>
      RunControl.find(run).foreach(_.readerClosed(batch))
    }

    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
      case ReaderOpened(run, batch, isRetry, executor) =>
        context.reply(RunControl.find(run).exists(_.readerOpened(batch, isRetry, Some(executor))))
    }

    override def onDisconnected(lost: RpcAddress): Unit = RunControl.all.foreach(_.executorLost(_.address == lost))
  }

  private class ExecutorEndpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
    override def receive: PartialFunction[Any, Unit] = { case EndBatch(run, batch) => OpenReaders.end(run, batch) }
  }
}
