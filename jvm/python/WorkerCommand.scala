package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.US_ASCII

import scala.jdk.CollectionConverters._

import net.razorvine.pickle.{Opcodes, Pickler}

import org.apache.spark.api.python.{ChainedPythonFunctions, PythonFunction, SimplePythonFunction}

/**
 * Builds the command that Spark's worker runs: the user's functions, wrapped in the engine's worker code.
 *
 * The command contains that code (`tailrace.worker`), so machines that run workers do not need Tailrace.
 */
private[tailrace] object WorkerCommand {

  /**
   * @param worker the pickled worker code: a callable that takes a function spec
   * @param spec describes the user's functions
   * @param functions the user's functions, whose files, broadcasts and interpreter the worker needs
   */
  def build(worker: Array[Byte], spec: ju.Map[String, Any], functions: Seq[PythonFunction]): ChainedPythonFunctions = {
    val first = functions.head
    ChainedPythonFunctions(
      Seq(
        new SimplePythonFunction(
          pickledCall(worker, spec),
          first.envVars,
          functions.flatMap(_.pythonIncludes.asScala).distinct.asJava,
          first.pythonExec,
          first.pythonVer,
          functions.flatMap(_.broadcastVars.asScala).distinct.asJava,
          first.accumulator)))
  }

  /** A pickle that evaluates `pickle.loads(worker)(spec)` when it is loaded. */
  private def pickledCall(worker: Array[Byte], spec: ju.Map[String, Any]): Array[Byte] = {
    val out = new ByteArrayOutputStream
    out.write(Array[Int](0x80, 2).map(_.toByte)) // protocol 2
    out.write("cpickle\nloads\n".getBytes(US_ASCII))
    out.write(pickled(worker))
    applyCallable(out)
    out.write(pickled(spec))
    applyCallable(out)
    out.write(Opcodes.STOP.toInt)
    out.toByteArray
  }

  /** Call the callable on the pickle stack with the object on top of it. */
  private def applyCallable(out: ByteArrayOutputStream): Unit = {
    out.write(Opcodes.TUPLE1.toInt)
    out.write(Opcodes.REDUCE.toInt)
  }

  /** The pickle of an object without the protocol header and the stop opcode. */
  private def pickled(value: Any): Array[Byte] = {
    val whole = new Pickler(/* useMemo = */ false, /* valueCompare = */ false).dumps(value)
    whole.slice(2, whole.length - 1)
  }
}
