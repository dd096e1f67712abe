package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.US_ASCII

import scala.jdk.CollectionConverters._

import net.razorvine.pickle.{Opcodes, Pickler}

import org.apache.spark.api.python.{ChainedPythonFunctions, PythonFunction, SimplePythonFunction}

/**
 * Wraps the user's functions in the Python half of the engine, which is sent with them: workers on other machines need not have it.
 */
private[tailrace] object Carrier {

  /**
   * A function for Spark's worker: what the Python half makes of a description of the user's.
   *
   * @param half the pickled Python half: a callable that takes the description
   * @param told the description
   * @param carried the user's functions, whose files, broadcasts and interpreter the worker needs
   */
  def function(half: Array[Byte], told: ju.Map[String, Any], carried: Seq[PythonFunction]): ChainedPythonFunctions = {
    val first = carried.head
    ChainedPythonFunctions(
      Seq(
        new SimplePythonFunction(
          call(half, told),
          first.envVars,
          carried.flatMap(_.pythonIncludes.asScala).distinct.asJava,
          first.pythonExec,
          first.pythonVer,
          carried.flatMap(_.broadcastVars.asScala).distinct.asJava,
          first.accumulator)))
  }

  /** A pickle that, when it is loaded, is `pickle.loads(half)(told)`. */
  private def call(half: Array[Byte], told: ju.Map[String, Any]): Array[Byte] = {
    val out = new ByteArrayOutputStream
    out.write(Array[Int](0x80, 2).map(_.toByte)) // protocol 2
    out.write("cpickle\nloads\n".getBytes(US_ASCII))
    out.write(pickled(half))
    apply(out)
    out.write(pickled(told))
    apply(out)
    out.write(Opcodes.STOP.toInt)
    out.toByteArray
  }

  /** The callable below the last object is called with that object. */
  private def apply(out: ByteArrayOutputStream): Unit = {
    out.write(Opcodes.TUPLE1.toInt)
    out.write(Opcodes.REDUCE.toInt)
  }

  /** An object's own part of a pickle: without the protocol before and the end after it. */
  private def pickled(value: Any): Array[Byte] = {
    val whole = new Pickler(/* useMemo = */ false, /* valueCompare = */ false).dumps(value)
    whole.slice(2, whole.length - 1)
  }
}
