package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.{ByteArrayOutputStream, DataOutputStream}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.sql.Row
import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.execution.python.streaming.{TransformWithStateInPySparkStateServer, ValueStateInfo}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImplBase
import org.apache.spark.sql.execution.streaming.state.StateMessage.{StateRequest, StateResponse, StateVariableRequest}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.sql.types.StructType

/**
 * Answers the requests of a processor in Python for its state: those of PySpark's own client, answered by Spark's own server,
 * which is given each request instead of a connection.
 */
private[tailrace] final class StateRequests(processor: StatefulProcessorHandle, keySchema: StructType) {
  private val bytes = new ByteArrayOutputStream
  private val out = new DataOutputStream(bytes)
  private val lists = mutable.HashMap.empty[String, Iterator[Row]]
  private val maps = mutable.HashMap.empty[String, Iterator[(Row, Row)]]
  private val timers = mutable.HashMap.empty[String, Iterator[Long]]
  private val values = mutable.HashMap.empty[String, ValueStateInfo]
  private val server = new TransformWithStateInPySparkStateServer(
    null,
    processor.asInstanceOf[StatefulProcessorHandleImplBase],
    keySchema,
    SQLConf.get.arrowTransformWithStateInPySparkMaxStateRecordsPerBatch,
    outputStreamForTest = out,
    valueStateMapForTest = values,
    iteratorMapForTest = lists,
    keyValueIteratorMapForTest = maps,
    listTimerMapForTest = timers)

  /** Forget the iterators over the state of another key. */
  def begin(): Unit = {
    lists.clear()
    maps.clear()
    timers.clear()
  }

  /** The values of the current key, pickled; null for one that does not exist. They go along with a row. */
  def valuesOfKey: ju.Map[String, Array[Byte]] =
    values.map { case (name, info) => name -> Option(info.valueState.get()).map(PythonSQLUtils.toPyRow).orNull }.asJava

  /** Change values of the current key, which come back with the results; null removes one. */
  def change(changes: ju.Map[String, Array[Byte]]): Unit = changes.forEach { (name, value) =>
    val info = values(name)
    if (value == null) info.valueState.clear()
    else info.valueState.update(PythonSQLUtils.toJVMRow(value, info.schema, info.deserializer))
  }

  def answer(request: Array[Byte]): Array[Byte] = {
    bytes.reset()
    try handle(StateRequest.parseFrom(request))
    catch {
      case NonFatal(failed) =>
        bytes.reset()
        val why = Option(failed.getMessage).getOrElse(failed.toString)
        val response = StateResponse.newBuilder().setStatusCode(1).setErrorMessage(why).build().toByteArray
        out.writeInt(response.length)
        out.write(response)
    }
    out.flush()
    bytes.toByteArray
  }

  private def handle(request: StateRequest): Unit = request.getMethodCase match {
    case StateRequest.MethodCase.STATEFULPROCESSORCALL => server.handleStatefulProcessorCall(request.getStatefulProcessorCall)
    case StateRequest.MethodCase.STATEVARIABLEREQUEST => handle(request.getStateVariableRequest)
    case StateRequest.MethodCase.TIMERREQUEST => server.handleTimerRequest(request.getTimerRequest)
    case StateRequest.MethodCase.UTILSREQUEST => server.handleUtilsRequest(request.getUtilsRequest)
    case other => throw new IllegalArgumentException(s"an unknown request of a stateful processor: $other")
  }

  private def handle(request: StateVariableRequest): Unit = request.getMethodCase match {
    case StateVariableRequest.MethodCase.VALUESTATECALL => server.handleValueStateRequest(request.getValueStateCall)
    case StateVariableRequest.MethodCase.LISTSTATECALL => server.handleListStateRequest(request.getListStateCall)
    case StateVariableRequest.MethodCase.MAPSTATECALL => server.handleMapStateRequest(request.getMapStateCall)
    case other => throw new IllegalArgumentException(s"an unknown request for a state variable: $other")
  }
}
