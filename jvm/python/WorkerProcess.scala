package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.OptionConverters._

import org.apache.spark.api.python.{LocalPythonWorkerHandle, PythonWorker, PythonWorkerHandle}

/** The process of a worker, once Spark's runner has started it. */
private[tailrace] final class WorkerProcess {
  @volatile private var started: Option[Started] = None

  /** Whether the process was killed because it exceeded the time limit. */
  @volatile var timedOut = false

  def attach(worker: PythonWorker, handle: Option[PythonWorkerHandle]): Unit = started = Some(new Started(worker, handle))

  /** Kill the process and close its channel, so that a thread that waits for a reply gets an exception. */
  def kill(): Unit = started.foreach(_.kill())

  private final class Started(worker: PythonWorker, handle: Option[PythonWorkerHandle]) {
    // Looked up now: later, another process may have this pid.
    private val process = handle.collect { case local: LocalPythonWorkerHandle => local }
      .flatMap(local => ProcessHandle.of(local.pid).toScala)

    def kill(): Unit =
      try {
        // Spark's handle sends SIGTERM, which a worker may ignore.
        if (process.isDefined) process.foreach(_.destroyForcibly()) else handle.foreach(_.destroy())
      } finally {
        try worker.stop()
        catch { case _: Exception => } // the worker has exited already
      }
  }
}
