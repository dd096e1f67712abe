package org.apache.spark.sql.tailrace

import java.nio.file.Files
import java.util.UUID
import java.util.concurrent.TimeoutException

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
import org.apache.spark.sql.connector.write.LogicalWriteInfoImpl
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, SparkDataStream, SupportsAdmissionControl, SupportsRealTimeMode}
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.{CommandExecutionMode, MapPartitionsExec, SortExec, SparkPlan}
import org.apache.spark.sql.execution.datasources.{DataSource, FileFormat}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Utils, FileDataSourceV2, RealTimeStreamScanExec, StreamingDataSourceV2Relation, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.exchange.{ENSURE_REQUIREMENTS, REPARTITION_BY_NUM, ShuffleExchangeExec}
import org.apache.spark.sql.execution.python.tailrace.Functions
import org.apache.spark.sql.execution.streaming.operators.stateful.{StreamingDeduplicateWithinWatermarkExec, WatermarkSupport}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.{StreamingSymmetricHashJoinExec, StreamingSymmetricHashJoinHelper}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, RealTimeModeAllowlist, StreamingRelation, WatermarkPropagator}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.kafka010.tailrace.KafkaTasks
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.Utils

/**
 * What Spark would do with a streaming query, found without starting it: no query, no job, no file, no topic.
 *
 * It asks the parts of Spark that a started query would meet, one after the other, and notes what each refuses, so
 * that the rules are those of the Spark that runs and never a copy of them.
 */
object Preflight {
  private val AllowlistCondition = "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"

  private val BrokerCondition = "TAILRACE_BROKER_SILENT"
  private val Impatience = Map(
    "kafka.default.api.timeout.ms" -> "5000",
    "kafka.request.timeout.ms" -> "5000",
    "fetchoffset.numretries" -> "1")

  /** Kafka's client got no answer to a question that the query would ask, too. */
  private class BrokerSilent(cause: Throwable)
      extends RuntimeException(Option(cause.getMessage).getOrElse("Kafka's client failed"), cause)

  /** The start of a stream that is never read. */
  private object Anywhere extends Offset {
    override def json(): String = "{}"
  }

  /**
   * @param frame what is written
   * @param outputMode append, update or complete
   * @param microbatchMode the output mode that the query would have in micro-batch
   * @param sink the sink's format, null where there is none yet
   * @param sinkOptions its options
   * @param intervalMs how long a real-time batch lasts; 0 means micro-batch
   * @param ask whether the broker may be asked which tasks its topics make; it is waited for where it does not answer
   * @param starts where the checkpoint says that each source goes on, in their order; none for a fresh one
   * @return the plan and the refusals, as JSON
   */
  def examine(
      frame: DataFrame,
      outputMode: String,
      microbatchMode: String,
      sink: String,
      sinkOptions: java.util.Map[String, String],
      intervalMs: Long,
      ask: Boolean,
      starts: java.util.List[String]): String = {
    val rows = frame.asInstanceOf[Dataset[_]]
    def look(mode: String, intervalMs: Long, ask: Boolean, starts: Seq[String]): Examined = {
      val examined = new Examined(rows, InternalOutputModes(mode), intervalMs, ask, starts)
      if (sink != null) {
        examined.sink(sink, sinkOptions.asScala.toMap)
      }
      examined.analysis()
      examined.plan()
      examined
    }
    val examined = look(outputMode, intervalMs, ask, starts.asScala.toSeq)
    val inMicrobatch = if (intervalMs > 0) look(microbatchMode, 0L, ask = false, Nil) else examined
    compact(render(examined.told.merge(JObject(JField("microbatch", JBool(inMicrobatch.accepted))))))
  }

  private class Examined(
      frame: Dataset[_],
      outputMode: OutputMode,
      intervalMs: Long,
      ask: Boolean,
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

    def told: JObject = JObject(
      JField("refusals", JArray(refusals.toList)),
      JField("tasks", JArray(tasks.map(JString(_)).toList)),
      JField("calls", JArray(calls.map(call => JObject(place(call))).toList)),
      JField("windows_s", JArray(windows.map(JDouble(_)).toList)),
      JField("pivots", JBool(pivots)),
      JField("plan", planned.map(node).getOrElse(JNull)))

    /** The user's DataFrame calls that are known, the last first: the optimizer may move a node and forget its own. */
    private def calls: Seq[Origin] =
      analyzed.collect { case plan if plan.origin.pysparkErrorContext.isDefined => plan.origin }.distinct

    /** How long the time windows of the query are: the analyser keeps it only in the sum that makes their end. */
    private def windows: Seq[Double] = analyzed.collect { case plan =>
      plan.expressions.flatMap(_.collect {
        case window: CreateNamedStruct if window.names.map(_.toString) == Seq("start", "end") =>
          window.valExprs.last.collectFirst { case Add(_, Literal(micros: Long, _), _) => micros / 1e6 }
      }).flatten
    }.flatten.distinct

    /** Whether the query pivots: Spark makes two aggregates of that, and refuses the second in its own words. */
    private def pivots: Boolean =
      analyzed.exists(_.expressions.exists(_.exists(_.isInstanceOf[PivotFirst])))

    /** A sink that takes no rows one by one, or is not on Spark's list, or does not take these rows. */
    def sink(format: String, options: Map[String, String]): Unit = noting(Origin()) {
      sinkTable(format, options) match {
        case Some(table) =>
          if (realTime) RealTimeModeAllowlist.checkAllowedSink(table, throwException = checksAllowlist)
          // Kafka's looks at the columns and nothing else; what another one would do is not known here.
          if (format == "kafka") {
            val asked = new CaseInsensitiveStringMap(options.asJava)
            val write = LogicalWriteInfoImpl(UUID.randomUUID().toString, frame.schema, asked)
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

    /** What Spark's analyser refuses of any streaming query, and of a real-time one. */
    def analysis(): Unit = if (spark.sessionState.conf.isUnsupportedOperationCheckEnabled) {
      if (realTime) {
        noting(Origin())(UnsupportedOperationChecker.checkAdditionalRealTimeModeConstraints(analyzed, outputMode))
      }
      noting(Origin())(UnsupportedOperationChecker.checkForStreaming(analyzed, outputMode))
    }

    /** The plan, and the operators in it that are not on Spark's list. */
    def plan(): Unit = {
      val before = refusals.size
      try {
        // In micro-batch the source stays what it is: what is planned above it does not depend on it.
        val scanned = if (realTime) withScratch(scans) else analyzed
        if (refusals.size == before) {
          planned = Some(executedPlan(scanned))
          if (realTime && checksAllowlist) planned.foreach(allowed)
        }
      } catch {
        // Where the analyser has refused it already, planning may fail in its own words: nothing new to tell.
        case NonFatal(failed) if refusals.isEmpty => refuse(failed, Origin())
        case NonFatal(_) =>
      }
    }

    private def executedPlan(scanned: LogicalPlan): SparkPlan = {
      val execution = new IncrementalExecution(
        spark,
        scanned,
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
      execution.executedPlan
    }

    private def allowed(executed: SparkPlan): Unit =
      try RealTimeModeAllowlist.checkAllowedPhysicalOperator(executed, throwException = true)
      catch {
        case refused: SparkThrowable if refused.getCondition == AllowlistCondition =>
          // "a.b.C, a.b.D are": Spark tells class names in a sentence and in no other way.
          val names = refused.getMessageParameters.get("message").stripSuffix(" is").stripSuffix(" are").split(", ")
          violations = names.toSet
          // Should its words change one day, nothing may pass for that.
          if (!executed.exists(isViolation)) refuse(refused, Origin())
      }

    /** The plan with every streaming source as the scan that a real-time batch would make of it. */
    private def scans(scratch: String): LogicalPlan = {
      val made = mutable.LinkedHashMap.empty[LogicalPlan, StreamingDataSourceV2ScanRelation]
      var used = 0
      val scanned = analyzed.transform {
        case relation @ StreamingRelationV2(_, name, table: SupportsRead, options, output, catalog, ident, _, sourceName)
            if table.supportsMicroBatch =>
          used += 1
          made.getOrElseUpdate(
            relation, {
              val scan = table.newScanBuilder(impatient(options)).build()
              val stream = scan.toMicroBatchStream(s"$scratch/$used")
              opened += stream
              requireRealTime(stream, relation.origin)
              if (ask) noting(relation.origin)(askFor(stream, starts.lift(made.size)))
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
      if (made.size < used && refusals.isEmpty) {
        noting(Origin()) {
          throw new SparkIllegalArgumentException(
            errorClass = "STREAMING_REAL_TIME_MODE.IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED",
            messageParameters = Map("sources" -> made.values.map(_.name).mkString(", ")))
        }
      }
      scanned
    }

    /** A folder for sources that write down where they start; it is gone before anybody sees it. */
    private def withScratch[T](use: String => T): T = {
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

    /** Which partitions the source's tasks would read, in order; and what it refuses to plan. */
    private def askFor(stream: SparkDataStream, start: Option[String]): Unit = stream match {
      case kafka: MicroBatchStream with SupportsAdmissionControl with SupportsRealTimeMode if isKafka(stream) =>
        try spark.withActive(tasks ++= KafkaTasks.of(kafka, start))
        catch { case NonFatal(failed) if isOfKafka(failed) => throw new BrokerSilent(failed) }
      case _ =>
    }

    /** Whether Kafka's client has failed, rather than Spark refused. */
    private def isOfKafka(failed: Throwable): Boolean =
      Iterator.iterate(failed)(_.getCause).takeWhile(_ != null).exists { cause =>
        cause.getClass.getName.startsWith("org.apache.kafka.") || cause.isInstanceOf[TimeoutException]
      }

    /** The options of a source that is only asked: a broker that does not answer is not waited for. */
    private def impatient(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
      val all = new java.util.HashMap[String, String](options.asCaseSensitiveMap())
      Impatience.foreach { case (key, value) => if (!options.containsKey(key)) all.put(key, value) }
      new CaseInsensitiveStringMap(all)
    }

    private def isKafka(stream: SparkDataStream): Boolean =
      stream.getClass.getName.startsWith("org.apache.spark.sql.kafka010.")

    private def refuseSource(name: String, origin: Origin): Unit = noting(origin) {
      throw new SparkIllegalArgumentException(
        errorClass = "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",
        messageParameters = Map("className" -> name))
    }

    /** Kafka's first offset would be written into the checkpoint; others may be asked for theirs while planning. */
    private def startOf(stream: SparkDataStream): Offset =
      if (isKafka(stream)) Anywhere else stream.initialOffset()

    private def sinkTable(format: String, options: Map[String, String]): Option[SupportsWrite] = format match {
      case "memory" | "foreach" | "foreachBatch" => None
      case _ =>
        val found = DataSource.lookupDataSource(format, spark.sessionState.conf)
        if (!classOf[TableProvider].isAssignableFrom(found) || classOf[FileDataSourceV2].isAssignableFrom(found)) {
          None
        } else {
          val provider = found.getConstructor().newInstance().asInstanceOf[TableProvider]
          val schema = if (provider.supportsExternalMetadata()) Some(frame.schema) else None
          val table =
            DataSourceV2Utils.getTableFromProvider(provider, new CaseInsensitiveStringMap(options.asJava), schema)
          Some(table).collect {
            case writable: SupportsWrite if writable.capabilities().contains(TableCapability.STREAMING_WRITE) => writable
          }
        }
    }

    /** Whether a sink writes files: it takes append mode alone, and to make it would make its folder. */
    private def isFile(format: String): Boolean = !Set("memory", "foreach", "foreachBatch")(format) && {
      val found = DataSource.lookupDataSource(format, spark.sessionState.conf)
      classOf[FileDataSourceV2].isAssignableFrom(found) || classOf[FileFormat].isAssignableFrom(found)
    }

    private def noting(origin: Origin)(step: => Unit): Unit =
      try step
      catch { case NonFatal(refused) => refuse(refused, origin) }

    private def refuse(refused: Throwable, origin: Origin): Unit = {
      val (condition, parameters) = refused match {
        case throwable: SparkThrowable =>
          (Option(throwable.getCondition).getOrElse(""), throwable.getMessageParameters.asScala.toMap)
        case _: BrokerSilent => (BrokerCondition, Map.empty[String, String])
        case _ => ("", Map.empty[String, String])
      }
      refusals += JObject(
        List(
          JField("condition", JString(condition)),
          JField("message", JString(Option(refused.getMessage).getOrElse(refused.getClass.getName))),
          JField("parameters", JObject(parameters.map { case (key, value) => JField(key, JString(value)) }.toList)))
          ++ place(lineOf(refused).getOrElse(origin)))
    }

    /** Where a user made what the analyser refuses. */
    private def lineOf(refused: Throwable): Option[Origin] = refused match {
      case analysis: ExtendedAnalysisException =>
        analysis.plan.map(_.origin).filter(_.pysparkErrorContext.isDefined)
      case _ => None
    }

    private def node(plan: SparkPlan): JObject = {
      val exchange = plan match {
        case shuffle: ShuffleExchangeExec => Some(shuffle)
        case _ => None
      }
      val carried = plan match {
        case MapPartitionsExec(python: Functions, _, _) => Some(python)
        case _ => None
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
          JField("path", JString(carried.map(_.path).getOrElse(""))),
          JField("children", JArray(plan.children.map(node).toList)))
          ++ place(lineOf(plan)))
    }

    /** Where a user made a node: its call, or else one of the columns in it, which carry their lines themselves. */
    private def lineOf(plan: SparkPlan): Origin = {
      val made = plan.logicalLink.map(_.origin).getOrElse(plan.origin)
      val columns = plan.expressions.iterator.flatMap(_.collect { case each => each.origin })
      (callOf(functionsOf(plan)).iterator ++ Iterator(made) ++ columns)
        .find(_.pysparkErrorContext.isDefined).getOrElse(made)
    }

    /** The user's call that has a Python function in it: no column with one knows its line, nor what is planned of it. */
    private def callOf(functions: Seq[String]): Option[Origin] = analyzed.collectFirst {
      case called if called.origin.pysparkErrorContext.isDefined && called.expressions.exists(_.exists {
            case function: PythonUDF => functions.contains(function.name)
            case _ => false
          }) =>
        called.origin
    }

    /** The names of the Python functions that a node calls. */
    private def functionsOf(plan: SparkPlan): Seq[String] = plan match {
      case MapPartitionsExec(python: Functions, _, _) => python.names.distinct
      case _ => plan.expressions.flatMap(_.collect { case function: PythonUDF => function.name }).distinct
    }

    /** Whether Spark has refused this very node: of a class it named, with a stream below it. */
    private def isViolation(plan: SparkPlan): Boolean = {
      val refused = plan match {
        // An exchange is on Spark's list, and still refused where it needs to know all rows first.
        case shuffle: ShuffleExchangeExec => shuffle.outputPartitioning.isInstanceOf[RangePartitioning]
        case _ => true
      }
      refused && violations(plan.getClass.getName) && plan.exists(_.isInstanceOf[RealTimeStreamScanExec])
    }

    /** Whether Spark added a node for what another operator requires: no call of the user's stands for it. */
    private def isImplied(plan: SparkPlan): Boolean = plan match {
      case sort: SortExec => !sort.logicalLink.exists(_.isInstanceOf[Sort])
      case shuffle: ShuffleExchangeExec => shuffle.shuffleOrigin == ENSURE_REQUIREMENTS
      case _ => false
    }

    /** Whether the watermark removes an operator's state. */
    private def isBounded(plan: SparkPlan): Boolean = plan match {
      // Each key is kept until the watermark passes the time of its first row.
      case within: StreamingDeduplicateWithinWatermarkExec => within.child.output.exists(hasWatermark)
      case join: StreamingSymmetricHashJoinExec =>
        // With any watermark: whether there is a predicate depends on the columns and the condition alone.
        val removed = StreamingSymmetricHashJoinHelper.getStateWatermarkPredicates(
          join.left.output, join.right.output, join.leftKeys, join.rightKeys, join.condition.full,
          Some(0L), Some(0L), useFirstEventTimeColumn = true)
        removed.left.isDefined && removed.right.isDefined
      case stateful: WatermarkSupport => stateful.keyExpressions.exists(hasWatermark)
      case _ => true
    }

    private def hasWatermark(column: Attribute): Boolean = column.metadata.contains(EventTimeWatermark.delayKey)

    /** The user's call and its line, where one was recorded. */
    private def place(origin: Origin): List[JField] = {
      val (call, line) = origin.pysparkErrorContext.getOrElse(("", ""))
      List(JField("call", JString(call)), JField("line", JString(line)))
    }
  }

  private implicit class Reads(table: Table) {
    def supportsMicroBatch: Boolean = table.capabilities().contains(TableCapability.MICRO_BATCH_READ)
  }
}
