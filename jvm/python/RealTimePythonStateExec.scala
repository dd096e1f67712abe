package org.apache.spark.sql.execution.python.streaming.tailrace

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.{TransformWithStateInPySparkExec, TransformWithStateInPySparkPythonPreInitRunner}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.DriverStatefulProcessorHandleImpl
import org.apache.spark.sql.execution.streaming.state.StateSchemaValidationResult
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types.{StructField, StructType}

/**
 * Spark's operator for stateful processors in Python, until the planning has recorded its state.
 *
 * Spark reads the schema of the state before with the offsets of the batch that it plans. In real time these are not written yet,
 * so the ones before are needed, as Spark itself does for processors in Scala. Otherwise it is the same operator.
 */
class RealTimePythonStateExec(
    function: Expression,
    keys: Seq[Attribute],
    results: Seq[Attribute],
    mode: OutputMode,
    times: TimeMode,
    info: Option[StatefulOperatorStateInfo],
    timestampMs: Option[Long],
    lastTimestampMs: Option[Long],
    watermarkForLateEvents: Option[Long],
    watermarkForEviction: Option[Long],
    kind: UserFacingDataType.Value,
    rows: SparkPlan,
    streaming: Boolean,
    withInitialState: Boolean,
    initial: SparkPlan,
    initialKeys: Seq[Attribute],
    initialSchema: StructType)
    extends TransformWithStateInPySparkExec(
      function,
      keys,
      results,
      mode,
      times,
      info,
      timestampMs,
      lastTimestampMs,
      watermarkForLateEvents,
      watermarkForEviction,
      kind,
      rows,
      streaming,
      withInitialState,
      initial,
      initialKeys,
      initialSchema) {

  /** Like Spark's, in real time. */
  override def validateAndMaybeEvolveStateSchema(
      hadoopConf: Configuration,
      batchId: Long,
      stateSchemaVersion: Int): List[StateSchemaValidationResult] = {
    val keySchema = StructType(groupingAttributes.map(key => StructField(key.name, key.dataType, key.nullable)))
    TransformWithStateInPySparkExec.runPreInitRunner(
      new TransformWithStateInPySparkPythonPreInitRunner(
        functionExpr.asInstanceOf[PythonUDF].func,
        "pyspark.sql.streaming.transform_with_state_driver_worker",
        keySchema,
        driverHandle))
    validateAndWriteStateSchema(
      hadoopConf,
      batchId,
      stateSchemaVersion,
      getStateInfo,
      stateSchemaDirPath(),
      session,
      operatorStateMetadataVersion,
      conf.stateStoreEncodingFormat,
      isRealTimeMode = true)
  }

  /** What the processor declares goes into a private field, from which Spark's operator takes the schema. */
  private def driverHandle: DriverStatefulProcessorHandleImpl = {
    val field = classOf[TransformWithStateInPySparkExec].getDeclaredFields
      .find(_.getType == classOf[DriverStatefulProcessorHandleImpl])
      .getOrElse(throw new IllegalStateException("Spark's operator for stateful processors in Python has another form"))
    field.setAccessible(true)
    field.get(this).asInstanceOf[DriverStatefulProcessorHandleImpl]
  }

  override def copy(
      functionExpr: Expression,
      groupingAttributes: Seq[Attribute],
      outputAttrs: Seq[Attribute],
      outputMode: OutputMode,
      timeMode: TimeMode,
      stateInfo: Option[StatefulOperatorStateInfo],
      batchTimestampMs: Option[Long],
      prevBatchTimestampMs: Option[Long],
      eventTimeWatermarkForLateEvents: Option[Long],
      eventTimeWatermarkForEviction: Option[Long],
      userFacingDataType: UserFacingDataType.Value,
      child: SparkPlan,
      isStreaming: Boolean,
      hasInitialState: Boolean,
      initialState: SparkPlan,
      initialStateGroupingAttrs: Seq[Attribute],
      initialStateSchema: StructType): TransformWithStateInPySparkExec =
    new RealTimePythonStateExec(
      functionExpr,
      groupingAttributes,
      outputAttrs,
      outputMode,
      timeMode,
      stateInfo,
      batchTimestampMs,
      prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      userFacingDataType,
      child,
      isStreaming,
      hasInitialState,
      initialState,
      initialStateGroupingAttrs,
      initialStateSchema)
}
