package tailrace.measure

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.kafka.common.serialization.{Deserializer, Serde, Serdes, Serializer}
import org.apache.kafka.common.utils.Bytes
import org.apache.kafka.streams.kstream.{Consumed, Grouped, KStream, Materialized, Produced}
import org.apache.kafka.streams.state.KeyValueStore
import org.apache.kafka.streams.{KafkaStreams, StreamsBuilder, Topology}

import java.time.Duration
import java.util.Properties
import java.util.concurrent.CountDownLatch

/** The works of a benchmark on Kafka Streams' DSL.
  *
  * Arguments are `key=value`. Those that begin with `conf.` go to Kafka Streams as they are, so that what the report
  * lists is what was set.
  */
object StreamsLane {
  case class Event(id: Long, sentNs: Long, key: String, amount: Double)
  case class Doubled(id: Long, sentNs: Long, key: String, doubled: Double)
  case class Totals(id: Long, sentNs: Long, key: String, count: Long, total: Double) {
    def and(event: Event): Totals = Totals(event.id, event.sentNs, event.key, count + 1, total + event.amount)
  }

  private val json = new ObjectMapper

  private def serde[T](write: T => Array[Byte], read: Array[Byte] => T): Serde[T] = {
    val serializer: Serializer[T] = (_, value) => write(value)
    val deserializer: Deserializer[T] = (_, bytes) => read(bytes)
    Serdes.serdeFrom(serializer, deserializer)
  }

  private def start(id: Long, sentNs: Long, key: String) =
    json.createObjectNode().put("id", id).put("sent_ns", sentNs).put("key", key)

  private val events: Serde[Event] = serde(
    event => json.writeValueAsBytes(start(event.id, event.sentNs, event.key).put("amount", event.amount)),
    bytes => {
      val node = json.readTree(bytes)
      Event(
        node.get("id").longValue, node.get("sent_ns").longValue, node.get("key").textValue, node.get("amount").doubleValue
      )
    }
  )

  private val doubles: Serde[Doubled] = serde(
    one => json.writeValueAsBytes(start(one.id, one.sentNs, one.key).put("doubled", one.doubled)),
    _ => throw new UnsupportedOperationException("nothing reads them")
  )

  private val totals: Serde[Totals] = serde(
    one => json.writeValueAsBytes(start(one.id, one.sentNs, one.key).put("count", one.count).put("total", one.total)),
    bytes => {
      val node = json.readTree(bytes)
      Totals(
        node.get("id").longValue, node.get("sent_ns").longValue, node.get("key").textValue,
        node.get("count").longValue, node.get("total").doubleValue
      )
    }
  )

  def topology(work: String, source: String, sink: String, repartition: Boolean): Topology = {
    val builder = new StreamsBuilder
    val input = builder.stream(source, Consumed.`with`(Serdes.String, events))
    work match {
      case "stateless" =>
        val kept: KStream[String, Event] = input.filter((_, event) => event.amount >= 0)
        val results: KStream[String, Doubled] =
          kept.mapValues((event: Event) => Doubled(event.id, event.sentNs, event.key, event.amount * 2))
        results.to(sink, Produced.`with`(Serdes.String, doubles))
      case "aggregate" =>
        // The input is keyed by `key` already. Naming the key anew makes Kafka Streams send every record through a
        // topic of its own first, which is what it does whenever a program groups by anything else.
        val keyed: KStream[String, Event] = if (repartition) input.selectKey((_, event) => event.key) else input
        val none = Totals(0, 0, "", 0, 0.0)
        val stored: Materialized[String, Totals, KeyValueStore[Bytes, Array[Byte]]] =
          Materialized.`with`(Serdes.String, totals)
        keyed
          .groupByKey(Grouped.`with`(Serdes.String, events))
          .aggregate[Totals](() => none, (_: String, event: Event, before: Totals) => before.and(event), stored)
          .toStream()
          .to(sink, Produced.`with`(Serdes.String, totals))
    }
    builder.build()
  }

  def main(arguments: Array[String]): Unit = {
    val asked = arguments.map(_.split("=", 2)).map(pair => pair(0) -> pair(1)).toMap
    val settings = new Properties
    asked.foreach { case (key, value) =>
      if (key.startsWith("conf.")) settings.setProperty(key.stripPrefix("conf."), value)
    }
    settings.setProperty("bootstrap.servers", asked("bootstrap_servers"))
    val streams = new KafkaStreams(
      topology(asked("work"), asked("source"), asked("sink"), asked("repartition").toBoolean), settings
    )
    val ended = new CountDownLatch(1)
    // Without this a failed client would leave a process that runs and does nothing.
    streams.setStateListener((now, _) => if (now == KafkaStreams.State.ERROR) ended.countDown())
    Runtime.getRuntime.addShutdownHook(new Thread(() => { streams.close(Duration.ofSeconds(2)); () }))
    streams.start()
    ended.await()
    Runtime.getRuntime.halt(1)
  }
}
