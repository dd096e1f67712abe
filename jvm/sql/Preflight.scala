package org.apache.spark.sql.tailrace

import java.nio.file.Files
import java.util.UUID
import java.util.concurrent.TimeoutException

import scala.annotation.nowarn
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.json4s.JsonAST.{JArray, JBool, JDouble, JField, JInt, JNull, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{SparkIllegalArgumentException, SparkThrowable}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.ExtendedAnalysisException
import org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
import org.apache.spark.sql.catalyst.expressions.{Add, Attribute, CreateNamedStruct, Literal, PythonUDF}
import org.apache.spark.sql.catalyst.expressions.aggregate.PivotFirst
import org.apache.spark.sql.catalyst.plans.logical.{EventTimeWatermark, LogicalPlan, Sort}
import org.apache.spark.sql.catalyst.plans.physical.RangePartitioning
import org.apache.spark.sql.catalyst.streaming.InternalOutputModes
import org.apache.spark.sql.catalyst.trees.Origin
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.{SupportsRead, SupportsWrite, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.write.{BatchWrite, DataWriterFactory, LogicalWriteInfoImpl, PhysicalWriteInfo, WriterCommitMessage}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, SparkDataStream, SupportsAdmissionControl, SupportsRealTimeMode}
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.{CommandExecutionMode, MapPartitionsExec, SortExec, SparkPlan}
import org.apache.spark.sql.execution.datasources.{DataSource, FileFormat}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Utils, FileDataSourceV2, RealTimeStreamScanExec, StreamingDataSourceV2Relation, StreamingDataSourceV2ScanRelation, WriteToDataSourceV2, WriteToDataSourceV2Exec}
import org.apache.spark.sql.execution.exchange.{ENSURE_REQUIREMENTS, REPARTITION_BY_NUM, ShuffleExchangeExec}
import org.apache.spark.sql.execution.python.tailrace.{PythonFunctions, PythonProcessor}
import org.apache.spark.sql.execution.streaming.operators.stateful.{StreamingDeduplicateWithinWatermarkExec, WatermarkSupport}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.{StreamingSymmetricHashJoinExec, StreamingSymmetricHashJoinHelper}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExecBase
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, RealTimeModeAllowlist, StreamingRelation, WatermarkPropagator}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.kafka010.tailrace.KafkaTasks
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.Utils

/**
 * Finds out what Spark would do with a streaming query without starting it: no query, no job, no file, no topic.
 *
 * It calls each part of Spark that checks a query at its start, and records what each refuses. So the rules are always those
 * of the running Spark, never a copy.
 */
object Preflight {
  private val AllowlistCondition = "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"

  private val BrokerCondition = "TAILRACE_BROKER_SILENT"
  private val ShortTimeouts = Map(
    "kafka.default.api.timeout.ms" -> "5000",
    "kafka.request.timeout.ms" -> "5000",
    "fetchoffset.numretries" -> "1")

  /** The broker did not answer a request that the query would send, too. */
  private class BrokerTimeout(cause: Throwable)
      extends RuntimeException(Option(cause.getMessage).getOrElse("Kafka's client failed"), cause)

  /** The write of a query that is only planned. */
  private object NoWrite extends BatchWrite {
    override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
      throw new UnsupportedOperationException("the query is only planned")
    override def commit(messages: Array[WriterCommitMessage]): Unit = ()
    override def abort(messages: Array[WriterCommitMessage]): Unit = ()
  }

  /** The start offset of a stream that is never read. */
  private object NoOffset extends Offset {
    override def json(): String = "{}"
  }

  /**
   * @param frame the rows to write
   * @param outputMode append, update or complete
   * @param microbatchMode the output mode that the query would have in micro-batch
   * @param sink the format of the sink; null if there is none yet
   * @param sinkOptions the options of the sink
   * @param intervalMs how long a real-time batch lasts; 0 for micro-batch
   * @param askBroker whether to ask the broker which tasks its topics need, with a short timeout
   * @param starts the checkpoint's offsets of each source, in their order; empty without a checkpoint
   * @return the plan and the refusals, as JSON
   */
  def examine(
      frame: DataFrame,
      outputMode: String,
      microbatchMode: String,
      sink: String,
      sinkOptions: java.util.Map[String, String],
      intervalMs: Long,
      askBroker: Boolean,
      starts: java.util.List[String]): String = {
    val rows = frame.asInstanceOf[Dataset[_]]
    def run(mode: String, intervalMs: Long, askBroker: Boolean, starts: Seq[String]): Examination = {
      val examination = new Examination(rows, InternalOutputModes(mode), intervalMs, askBroker, starts)
      if (sink != null) {
        examination.checkSink(sink, sinkOptions.asScala.toMap)
      }
      examination.checkAnalysis()
      examination.checkPlan()
      examination
    }
    val examination = run(outputMode, intervalMs, askBroker, starts.asScala.toSeq)
    val inMicrobatch = if (intervalMs > 0) run(microbatchMode, 0L, askBroker = false, Nil) else examination
    compact(render(examination.toJson.merge(JObject(JField("microbatch", JBool(inMicrobatch.accepted))))))
  }

  private class Examination(
      frame: Dataset[_],
      outputMode: OutputMode,
      intervalMs: Long,
      askBroker: Boolean,
      starts: Seq[String]) {
    private val spark: SparkSession = frame.sparkSession
    private val analyzed = frame.queryExecution.analyzed
    private val realTime = intervalMs > 0
    private val checksAllowlist =
      spark.sessionState.conf.getConf(SQLConf.STREAMING_REAL_TIME_MODE_ALLOWLIST_CHECK)
    private val refusals = mutable.ArrayBuffer.empty[JObject]
    private var planned: Option[SparkPlan] = None
    private var violations = Set.empty[String]
    private val tasks = mutable.ArrayBuffer.empty[String]
    private val opened = mutable.ArrayBuffer.empty[SparkDataStream]

    /** Whether nothing was refused. */
    def accepted: Boolean = refusals.isEmpty && violations.isEmpty

    def toJson: JObject = JObject(
      JField("refusals", JArray(refusals.toList)),
      JField("tasks", JArray(tasks.map(JString(_)).toList)),
      JField("calls", JArray(calls.map(call => JObject(callSite(call))).toList)),
      JField("windows_s", JArray(windows.map(JDouble(_)).toList)),
      JField("pivots", JBool(pivots)),
      JField("plan", planned.map(node).getOrElse(JNull)))

    /** The known DataFrame calls of the user, the last one first. The optimizer may drop the call of a node. */
    private def calls: Seq[Origin] =
      analyzed.collect { case plan if plan.origin.pysparkErrorContext.isDefined => plan.origin }.distinct

    /** The lengths of the time windows. After analysis they exist only in the sum that computes the end of a window. */
    private def windows: Seq[Double] = analyzed.collect { case plan =>
      plan.expressions.flatMap(_.collect {
        case window: CreateNamedStruct if window.names.map(_.toString) == Seq("start", "end") =>
          window.valExprs.last.collectFirst { case Add(_, Literal(micros: Long, _), _) => micros / 1e6 }
      }).flatten
    }.flatten.distinct

    /** Whether the query pivots. Spark plans two aggregates for that, and its refusal names only the second. */
    private def pivots: Boolean =
      analyzed.exists(_.expressions.exists(_.exists(_.isInstanceOf[PivotFirst])))

    /** Check that the sink supports streaming, is on Spark's allowlist, and accepts these columns. */
    def checkSink(format: String, options: Map[String, String]): Unit = recordRefusal(Origin()) {
      sinkTable(format, options) match {
        case Some(table) =>
          if (realTime) RealTimeModeAllowlist.checkAllowedSink(table, throwException = checksAllowlist)
          // Kafka's builder only checks the columns. What the builder of another sink does is not known.
          if (format == "kafka") {
            val sinkOptions = new CaseInsensitiveStringMap(options.asJava)
            val write = LogicalWriteInfoImpl(UUID.randomUUID().toString, frame.schema, sinkOptions)
            table.newWriteBuilder(write).build().toStreaming
          }
        case None if !realTime =>
          if (isFile(format) && outputMode != OutputMode.Append()) {
            throw QueryCompilationErrors.dataSourceOutputModeUnsupportedError(format, outputMode)
          }
        case None if format == "foreach" => ()
        case None =>
          throw new SparkIllegalArgumentException(
            errorClass = "STREAMING_REAL_TIME_MODE.SINK_NOT_SUPPORTED",
            messageParameters = Map("className" -> format))
      }
    }

    /** Run the checks of Spark's analyser for streaming and for real time. */
    def checkAnalysis(): Unit = if (spark.sessionState.conf.isUnsupportedOperationCheckEnabled) {
      if (realTime) {
        recordRefusal(Origin()) {
          UnsupportedOperationChecker.checkAdditionalRealTimeModeConstraints(analyzed, outputMode)
          if (checksAllowlist) RealTimeOperators.checkUnions(analyzed)
        }
      }
      recordRefusal(Origin())(UnsupportedOperationChecker.checkForStreaming(analyzed, outputMode))
    }

    /** Plan the query, and check its operators against Spark's allowlist. */
    def checkPlan(): Unit = {
      val before = refusals.size
      try {
        // In micro-batch the source is not replaced: the plan above does not depend on it.
        val scanned = if (realTime) withScratchFolder(withScans) else analyzed
        if (refusals.size == before) {
          planned = Some(executedPlan(scanned))
          if (realTime && checksAllowlist) planned.foreach(checkAllowlist)
        }
      } catch {
        // If the analyser has refused the query, a failure to plan it adds nothing.
        case NonFatal(failed) if refusals.isEmpty => refuse(failed, Origin())
        case NonFatal(_) =>
      }
    }

    /** Plan the query below a write, as a start does: Spark plans a limit that comes last as one for a collect. */
    @nowarn("cat=deprecation") // of the node that Spark's own streaming queries are planned with
    private def executedPlan(scanned: LogicalPlan): SparkPlan = {
      val execution = new IncrementalExecution(
        spark,
        WriteToDataSourceV2(None, NoWrite, scanned, Nil),
        outputMode,
        "<planning>",
        UUID.randomUUID(),
        UUID.randomUUID(),
        0L,
        None,
        OffsetSeqMetadata(0L, 0L, Map.empty[String, String]),
        WatermarkPropagator.noop(),
        isFirstBatch = false, // true would write state schemas into the checkpoint
        mode = CommandExecutionMode.SKIP,
        isRealTimeMode = realTime)
      execution.executedPlan match {
        case write: WriteToDataSourceV2Exec => write.query
        case other => other
      }
    }

    private def checkAllowlist(executed: SparkPlan): Unit =
      try RealTimeOperators.check(spark, executed)
      catch {
        case refused: SparkThrowable if refused.getCondition == AllowlistCondition =>
          // Spark reports class names only as a sentence: "a.b.C, a.b.D are".
          val names = refused.getMessageParameters.get("message").stripSuffix(" is").stripSuffix(" are").split(", ")
          violations = names.toSet
          // If that sentence changes, refuse the query as a whole.
          if (!executed.exists(isViolation)) refuse(refused, Origin())
      }

    /** Replace every streaming source by the scan of a real-time batch. */
    private def withScans(scratch: String): LogicalPlan = {
      val scans = mutable.LinkedHashMap.empty[LogicalPlan, StreamingDataSourceV2ScanRelation]
      var used = 0
      val scanned = analyzed.transform {
        case relation @ StreamingRelationV2(_, name, table: SupportsRead, options, output, catalog, ident, _, sourceName)
            if table.supportsMicroBatch =>
          used += 1
          scans.getOrElseUpdate(
            relation, {
              val scan = table.newScanBuilder(withShortTimeouts(options)).build()
              val stream = scan.toMicroBatchStream(s"$scratch/$used")
              opened += stream
              requireRealTime(stream, relation.origin)
              if (askBroker) recordRefusal(relation.origin)(addTasks(stream, starts.lift(scans.size)))
              StreamingDataSourceV2ScanRelation(
                StreamingDataSourceV2Relation(
                  table, output, catalog, ident, options, s"$scratch/$used", Some(intervalMs), sourceName),
                scan,
                output,
                stream,
                Some(startOf(stream)))
            })
        case relation: StreamingRelation =>
          used += 1
          refuseSource(relation.sourceName, relation.origin)
          relation
      }
      if (scans.size < used && refusals.isEmpty) {
        recordRefusal(Origin()) {
          throw new SparkIllegalArgumentException(
            errorClass = "STREAMING_REAL_TIME_MODE.IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED",
            messageParameters = Map("sources" -> scans.values.map(_.name).mkString(", ")))
        }
      }
      scanned
    }

    /** Run work with a temporary folder, for sources that write their start offsets; delete it afterwards. */
    private def withScratchFolder[T](use: String => T): T = {
      val folder = Files.createTempDirectory("tailrace-preflight")
      try use(folder.toUri.toString)
      finally {
        opened.foreach(stream => Utils.tryLogNonFatalError(stream.stop()))
        Utils.deleteRecursively(folder.toFile)
      }
    }

    private def requireRealTime(stream: SparkDataStream, origin: Origin): Unit = stream match {
      case _: SupportsRealTimeMode =>
      case other => refuseSource(other.getClass.getName, origin)
    }

    /** Add the partitions that the source's tasks would read, in task order. */
    private def addTasks(stream: SparkDataStream, start: Option[String]): Unit = stream match {
      case kafka: MicroBatchStream with SupportsAdmissionControl with SupportsRealTimeMode if isKafka(stream) =>
        try spark.withActive(tasks ++= KafkaTasks.of(kafka, start))
        catch { case NonFatal(failed) if isKafkaFailure(failed) => throw new BrokerTimeout(failed) }
      case _ =>
    }

    /** Whether Kafka's client failed, as opposed to a refusal by Spark. */
    private def isKafkaFailure(failed: Throwable): Boolean =
      Iterator.iterate(failed)(_.getCause).takeWhile(_ != null).exists { cause =>
        cause.getClass.getName.startsWith("org.apache.kafka.") || cause.isInstanceOf[TimeoutException]
      }

    /** Add short timeouts to the options of a source, unless the user set them. */
    private def withShortTimeouts(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
      val all = new java.util.HashMap[String, String](options.asCaseSensitiveMap())
      ShortTimeouts.foreach { case (key, value) => if (!options.containsKey(key)) all.put(key, value) }
      new CaseInsensitiveStringMap(all)
    }

    private def isKafka(stream: SparkDataStream): Boolean =
      stream.getClass.getName.startsWith("org.apache.spark.sql.kafka010.")

    private def refuseSource(name: String, origin: Origin): Unit = recordRefusal(origin) {
      throw new SparkIllegalArgumentException(
        errorClass = "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",
        messageParameters = Map("className" -> name))
    }

    /** Kafka would write its initial offset into the checkpoint. Other sources may be asked for it during planning. */
    private def startOf(stream: SparkDataStream): Offset =
      if (isKafka(stream)) NoOffset else stream.initialOffset()

    private def sinkTable(format: String, options: Map[String, String]): Option[SupportsWrite] = format match {
      case "memory" | "foreach" | "foreachBatch" => None
      case _ =>
        val source = DataSource.lookupDataSource(format, spark.sessionState.conf)
        if (!classOf[TableProvider].isAssignableFrom(source) || classOf[FileDataSourceV2].isAssignableFrom(source)) {
          None
        } else {
          val provider = source.getConstructor().newInstance().asInstanceOf[TableProvider]
          val schema = if (provider.supportsExternalMetadata()) Some(frame.schema) else None
          val table =
            DataSourceV2Utils.getTableFromProvider(provider, new CaseInsensitiveStringMap(options.asJava), schema)
          Some(table).collect {
            case writable: SupportsWrite if writable.capabilities().contains(TableCapability.STREAMING_WRITE) => writable
          }
        }
    }

    /** Whether a sink writes files. It supports only append mode, and creating it would create its folder. */
    private def isFile(format: String): Boolean = !Set("memory", "foreach", "foreachBatch")(format) && {
      val source = DataSource.lookupDataSource(format, spark.sessionState.conf)
      classOf[FileDataSourceV2].isAssignableFrom(source) || classOf[FileFormat].isAssignableFrom(source)
    }

    private def recordRefusal(origin: Origin)(step: => Unit): Unit =
      try step
      catch { case NonFatal(refused) => refuse(refused, origin) }

    private def refuse(refused: Throwable, origin: Origin): Unit = {
      val (condition, parameters) = refused match {
        case throwable: SparkThrowable =>
          (Option(throwable.getCondition).getOrElse(""), throwable.getMessageParameters.asScala.toMap)
        case _: BrokerTimeout => (BrokerCondition, Map.empty[String, String])
        case _ => ("", Map.empty[String, String])
      }
      refusals += JObject(
        List(
          JField("condition", JString(condition)),
          JField("message", JString(Option(refused.getMessage).getOrElse(refused.getClass.getName))),
          JField("parameters", JObject(parameters.map { case (key, value) => JField(key, JString(value)) }.toList)))
          ++ callSite(originOf(refused).getOrElse(origin)))
    }

    /** The origin of the node that the analyser refuses. */
    private def originOf(refused: Throwable): Option[Origin] = refused match {
      case analysis: ExtendedAnalysisException =>
        analysis.plan.map(_.origin).filter(_.pysparkErrorContext.isDefined)
      case _ => None
    }

    private def node(plan: SparkPlan): JObject = {
      val exchange = plan match {
        case shuffle: ShuffleExchangeExec => Some(shuffle)
        case _ => None
      }
      val path = plan match {
        case MapPartitionsExec(python: PythonFunctions, _, _) => python.path
        case _ => PythonProcessor.of(plan).map(_.path).getOrElse("")
      }
      JObject(
        List(
          JField("name", JString(plan.nodeName)),
          JField("partitions", exchange.map(each => JInt(each.outputPartitioning.numPartitions)).getOrElse(JNull)),
          JField("fixed", JBool(exchange.exists(_.shuffleOrigin == REPARTITION_BY_NUM))),
          JField("bounded", JBool(isBounded(plan))),
          JField("refused", JBool(isViolation(plan))),
          JField("implied", JBool(isImplied(plan))),
          JField("functions", JArray(functionsOf(plan).map(JString(_)).toList)),
          JField("path", JString(path)),
          JField("children", JArray(plan.children.map(node).toList)))
          ++ callSite(originOf(plan)))
    }

    /** The origin of a node: the user's call, or else one of its columns, which have lines of their own. */
    private def originOf(plan: SparkPlan): Origin = {
      val own = plan.logicalLink.map(_.origin).getOrElse(plan.origin)
      val columns = plan.expressions.iterator.flatMap(_.collect { case each => each.origin })
      (callOf(functionsOf(plan)).iterator ++ Iterator(own) ++ columns)
        .find(_.pysparkErrorContext.isDefined).getOrElse(own)
    }

    /** The user's call that uses one of these Python functions. Neither its column nor its planned node has a line. */
    private def callOf(functions: Seq[String]): Option[Origin] = analyzed.collectFirst {
      case called if called.origin.pysparkErrorContext.isDefined && called.expressions.exists(_.exists {
            case function: PythonUDF => functions.contains(function.name)
            case _ => false
          }) =>
        called.origin
    }

    /** The names of the Python functions that a node calls. */
    private def functionsOf(plan: SparkPlan): Seq[String] = plan match {
      case MapPartitionsExec(python: PythonFunctions, _, _) => python.names.distinct
      case _ if PythonProcessor.of(plan).isDefined => PythonProcessor.of(plan).map(_.name).toSeq
      case _ => plan.expressions.flatMap(_.collect { case function: PythonUDF => function.name }).distinct
    }

    /** Whether Spark refuses this node: its class is in the violations, and it has a stream below it. */
    private def isViolation(plan: SparkPlan): Boolean = {
      val refused = plan match {
        // An exchange is on the allowlist, but Spark refuses one by range, which needs all rows first.
        case shuffle: ShuffleExchangeExec => shuffle.outputPartitioning.isInstanceOf[RangePartitioning]
        case _ => true
      }
      refused && violations(plan.getClass.getName) && plan.exists(_.isInstanceOf[RealTimeStreamScanExec])
    }

    /** Whether Spark added a node because another operator requires it: no call of the user created it. */
    private def isImplied(plan: SparkPlan): Boolean = plan match {
      case sort: SortExec => !sort.logicalLink.exists(_.isInstanceOf[Sort])
      case shuffle: ShuffleExchangeExec => shuffle.shuffleOrigin == ENSURE_REQUIREMENTS
      case _ => false
    }

    /** Whether the watermark removes an operator's state. */
    private def isBounded(plan: SparkPlan): Boolean = plan match {
      // A key is removed when the watermark passes the time of its first row.
      case within: StreamingDeduplicateWithinWatermarkExec => within.child.output.exists(hasWatermark)
      case join: StreamingSymmetricHashJoinExec =>
        // Any watermark will do: whether a predicate exists depends only on the columns and the condition.
        val removed = StreamingSymmetricHashJoinHelper.getStateWatermarkPredicates(
          join.left.output, join.right.output, join.leftKeys, join.rightKeys, join.condition.full,
          Some(0L), Some(0L), useFirstEventTimeColumn = true)
        removed.left.isDefined && removed.right.isDefined
      case _: TransformWithStateExecBase => true // the processor decides, by TTL and timers
      case stateful: WatermarkSupport => stateful.keyExpressions.exists(hasWatermark)
      case _ => true
    }

    private def hasWatermark(column: Attribute): Boolean = column.metadata.contains(EventTimeWatermark.delayKey)

    /** The user's call and its line; empty if none was recorded. */
    private def callSite(origin: Origin): List[JField] = {
      val (call, line) = origin.pysparkErrorContext.getOrElse(("", ""))
      List(JField("call", JString(call)), JField("line", JString(line)))
    }
  }

  private implicit class TableReads(table: Table) {
    def supportsMicroBatch: Boolean = table.capabilities().contains(TableCapability.MICRO_BATCH_READ)
  }
}
