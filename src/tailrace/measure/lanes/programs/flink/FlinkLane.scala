package tailrace.measure

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.flink.api.common.eventtime.WatermarkStrategy
import org.apache.flink.api.common.functions.{FilterFunction, MapFunction, OpenContext, RichMapFunction}
import org.apache.flink.api.common.serialization.DeserializationSchema
import org.apache.flink.api.common.state.{ValueState, ValueStateDescriptor}
import org.apache.flink.api.common.typeinfo.{TypeInformation, Types}
import org.apache.flink.api.java.functions.KeySelector
import org.apache.flink.api.java.tuple.{Tuple2 => Pair, Tuple4 => Four, Tuple5 => Five}
import org.apache.flink.configuration.Configuration
import org.apache.flink.connector.base.DeliveryGuarantee
import org.apache.flink.connector.kafka.sink.{KafkaRecordSerializationSchema, KafkaSink}
import org.apache.flink.connector.kafka.source.KafkaSource
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer
import org.apache.flink.streaming.api.datastream.DataStream
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
import org.apache.kafka.clients.producer.ProducerRecord

import java.lang.{Double => JDouble, Long => JLong}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Properties
import scala.jdk.CollectionConverters._

/** The works of a benchmark on Flink's DataStream API: job manager, task manager and job in this one JVM.
  *
  * Arguments are `key=value`. Those that begin with `conf.`, `consumer.` and `producer.` go, as they are, to Flink and to
  * the two Kafka clients, so that what the report lists is what was set.
  */
object FlinkLane {

  /** id, sent_ns, key, amount; a Flink tuple, because Flink knows nothing of Scala's classes and would use Kryo. */
  type Event = Four[JLong, JLong, String, JDouble]

  /** id, sent_ns, key, doubled. */
  type Doubled = Four[JLong, JLong, String, JDouble]

  /** id, sent_ns, key, count, total. */
  type Totals = Five[JLong, JLong, String, JLong, JDouble]

  val fourType: TypeInformation[Four[JLong, JLong, String, JDouble]] =
    Types.TUPLE(Types.LONG, Types.LONG, Types.STRING, Types.DOUBLE)
  val totalsType: TypeInformation[Totals] =
    Types.TUPLE(Types.LONG, Types.LONG, Types.STRING, Types.LONG, Types.DOUBLE)
  val stateType: TypeInformation[Pair[JLong, JDouble]] = Types.TUPLE(Types.LONG, Types.DOUBLE)

  def main(arguments: Array[String]): Unit = {
    val asked = arguments.map(_.split("=", 2)).map(pair => pair(0) -> pair(1)).toMap
    val env = StreamExecutionEnvironment.getExecutionEnvironment(Configuration.fromMap(below(asked, "conf.").asJava))
    val source = KafkaSource
      .builder[Event]()
      .setBootstrapServers(asked("bootstrap_servers"))
      .setTopics(asked("source"))
      .setGroupId(asked("group"))
      .setStartingOffsets(OffsetsInitializer.earliest())
      .setValueOnlyDeserializer(new EventReader)
      .setProperties(properties(below(asked, "consumer.")))
      .build()
    val events = env.fromSource(source, WatermarkStrategy.noWatermarks[Event](), "source", fourType)
    asked("work") match {
      case "stateless" =>
        val kept = events.filter(new NotNegative)
        write(asked, kept.map(new Doubling, fourType), new DoubledWriter(asked("sink")))
      case "aggregate" =>
        val keyed = events.keyBy(new ByKey, Types.STRING)
        write(asked, keyed.map(new Adding, totalsType), new TotalsWriter(asked("sink")))
    }
    env.execute("tailrace-bench")
    ()
  }

  private def write[T](
      asked: Map[String, String], results: DataStream[T], writer: KafkaRecordSerializationSchema[T]
  ): Unit = {
    val sink = KafkaSink
      .builder[T]()
      .setBootstrapServers(asked("bootstrap_servers"))
      .setRecordSerializer(writer)
      .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
      .setKafkaProducerConfig(properties(below(asked, "producer.")))
      .build()
    results.sinkTo(sink)
    ()
  }

  private def below(asked: Map[String, String], prefix: String): Map[String, String] =
    asked.collect { case (key, value) if key.startsWith(prefix) => key.stripPrefix(prefix) -> value }

  private def properties(values: Map[String, String]): Properties = {
    val properties = new Properties
    values.foreach { case (key, value) => properties.setProperty(key, value) }
    properties
  }

  class EventReader extends DeserializationSchema[Event] {
    @transient private lazy val json = new ObjectMapper

    override def deserialize(value: Array[Byte]): Event = {
      val node = json.readTree(value)
      new Four(
        node.get("id").longValue, node.get("sent_ns").longValue, node.get("key").textValue, node.get("amount").doubleValue
      )
    }

    override def isEndOfStream(event: Event): Boolean = false
    override def getProducedType: TypeInformation[Event] = fourType
  }

  class NotNegative extends FilterFunction[Event] {
    override def filter(event: Event): Boolean = event.f3 >= 0
  }

  class ByKey extends KeySelector[Event, String] {
    override def getKey(event: Event): String = event.f2
  }

  class Doubling extends MapFunction[Event, Doubled] {
    override def map(event: Event): Doubled = new Four(event.f0, event.f1, event.f2, event.f3 * 2)
  }

  class Adding extends RichMapFunction[Event, Totals] {
    @transient private var state: ValueState[Pair[JLong, JDouble]] = _

    override def open(context: OpenContext): Unit =
      state = getRuntimeContext.getState(new ValueStateDescriptor("totals", stateType))

    override def map(event: Event): Totals = {
      val before = state.value()
      val (count, total) = if (before == null) (0L, 0.0) else (before.f0.longValue, before.f1.doubleValue)
      val after = new Pair[JLong, JDouble](count + 1, total + event.f3)
      state.update(after)
      new Five(event.f0, event.f1, event.f2, after.f0, after.f1)
    }
  }

  class DoubledWriter(topic: String) extends KafkaRecordSerializationSchema[Doubled] {
    @transient private lazy val json = new ObjectMapper

    override def serialize(
        result: Doubled, context: KafkaRecordSerializationSchema.KafkaSinkContext, timestamp: JLong
    ): ProducerRecord[Array[Byte], Array[Byte]] = {
      val node = json.createObjectNode().put("id", result.f0).put("sent_ns", result.f1).put("key", result.f2)
      node.put("doubled", result.f3)
      new ProducerRecord(topic, result.f2.getBytes(UTF_8), json.writeValueAsBytes(node))
    }
  }

  class TotalsWriter(topic: String) extends KafkaRecordSerializationSchema[Totals] {
    @transient private lazy val json = new ObjectMapper

    override def serialize(
        result: Totals, context: KafkaRecordSerializationSchema.KafkaSinkContext, timestamp: JLong
    ): ProducerRecord[Array[Byte], Array[Byte]] = {
      val node = json.createObjectNode().put("id", result.f0).put("sent_ns", result.f1).put("key", result.f2)
      node.put("count", result.f3).put("total", result.f4)
      new ProducerRecord(topic, result.f2.getBytes(UTF_8), json.writeValueAsBytes(node))
    }
  }
}
