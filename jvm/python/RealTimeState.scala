package org.apache.spark.sql.execution.python.tailrace

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, TransformWithStateInPySpark, UnaryNode}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{ColumnarRule, MapPartitionsExec, SortExec, SparkPlan}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.python.streaming.tailrace.RealTimePythonStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.types.{StructField, StructType}

/**
 * Plans PySpark's stateful processors for real time.
 *
 * Spark's operator for them sorts the rows of a batch by key, so all of them would wait for its end. Spark's operator for processors
 * in Scala handles each row at once and is on the real-time allowlist, so it takes over, with a processor that calls the one in
 * Python. At this point of the planning Spark's operator for Python has recorded its name and its state's schema, so the
 * checkpoint stays the one of that operator.
 */
private[sql] object RealTimeState extends ColumnarRule {
  override val preColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case state: TransformWithStateInPySparkExec if !state.hasInitialState && reads(state.child) =>
        settings.map(planned(state, _)).getOrElse(state)
    }
  }

  /** Marks a processor in the logical plan: Spark's own strategy would come first for the processor itself. */
  private[tailrace] case class Processor(child: LogicalPlan) extends UnaryNode {
    override def output: Seq[Attribute] = child.output
    override protected def withNewChildInternal(changed: LogicalPlan): Processor = copy(child = changed)
  }

  /** Marks the processors that can run in real time. */
  private[tailrace] object Mark extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
      case state: TransformWithStateInPySpark if !state.hasInitialState && RealTimePython.isRealTime(state.left) => Processor(state)
      case Processor(marked: Processor) => marked
    }
  }

  /** Spark's operator for a marked processor, as Spark's own strategy plans it. */
  private[tailrace] def stated(state: TransformWithStateInPySpark, planLater: LogicalPlan => SparkPlan): SparkPlan =
    new RealTimePythonStateExec(
      state.functionExpr,
      state.leftAttributes,
      state.outputAttrs,
      state.outputMode,
      state.timeMode,
      None,
      None,
      None,
      None,
      None,
      state.userFacingDataType,
      planLater(state.left),
      true,
      state.hasInitialState,
      planLater(state.right),
      state.rightAttributes,
      state.initialStateSchema)

  private def settings: Option[PythonSettings] =
    SparkSession.getActiveSession.flatMap(RealTimePython.settingsOf)

  private def pythonOperators(plan: SparkPlan): Int = plan.collect {
    case MapPartitionsExec(_: PythonFunctions, _, _) => 1
  }.sum

  private def reads(plan: SparkPlan): Boolean = plan.exists(_.isInstanceOf[RealTimeStreamScanExec])

  private def planned(state: TransformWithStateInPySparkExec, settings: PythonSettings): SparkPlan = {
    val rows = withoutSort(state.child)
    val keySchema = StructType(state.groupingAttributes.map(key => StructField(key.name, key.dataType, key.nullable)))
    val keyEncoder = ExpressionEncoder(keySchema).resolveAndBind().asInstanceOf[ExpressionEncoder[Any]]
    val columns = ProcessorColumns.of(rows.output, state.groupingAttributes)
    val processor = new PythonProcessor(
      RealTimePython.operatorOf(columns.input, state.outputAttrs, pythonOperators(rows), settings),
      state.functionExpr.asInstanceOf[PythonUDF],
      if (state.userFacingDataType == UserFacingDataType.PANDAS) PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF
      else PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF,
      keySchema,
      columns)
    val handled = TransformWithStateExec(
      keyDeserializer = keyEncoder.deserializer,
      valueDeserializer = RealTimePython.structOf(columns.input),
      groupingAttributes = state.groupingAttributes,
      dataAttributes = rows.output,
      statefulProcessor = processor,
      timeMode = state.timeMode,
      outputMode = state.outputMode,
      keyEncoder = keyEncoder,
      outputObjAttr = RealTimePython.rowObject(state.outputAttrs),
      stateInfo = state.stateInfo,
      batchTimestampMs = state.batchTimestampMs,
      prevBatchTimestampMs = state.prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents = state.eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction = state.eventTimeWatermarkForEviction,
      child = rows,
      isRealTimeMode = true,
      initialStateGroupingAttrs = state.initialStateGroupingAttrs,
      initialStateDataAttrs = Nil,
      initialStateDeserializer = keyEncoder.deserializer,
      initialState = state.initialState)
    handled.copyTagsFrom(state)
    RealTimePython.rowsOf(state.output, handled)
  }

  /** The rows without the sort by key that Spark's operator for Python requires. */
  private def withoutSort(child: SparkPlan): SparkPlan = child match {
    case SortExec(_, false, rows, _) => rows
    case other => other
  }
}
