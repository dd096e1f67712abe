package org.apache.spark.sql.execution.python.tailrace

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.tailrace.{DeadLetters, Lineage, Malformed}
import org.apache.spark.unsafe.types.UTF8String

/** A Python function failed, where the pipeline asks for that to be the end of it. */
class FunctionFailedException(message: String) extends RuntimeException(message)

/** What a function did to a row, instead of answering. */
private[tailrace] case class Failure(function: String, error: String, traceback: String)

private[tailrace] object Failure {
  private implicit val formats: Formats = DefaultFormats

  def read(json: String): Failure = parse(json).extract[Failure]
}

/** What happens to a record on which a Python function fails: it ends the query, or becomes a dead letter. */
case class FailedRecords(deadLetters: Option[DeadLetters]) {
  private[tailrace] def handle(failure: Failure, origin: Option[InternalRow], reader: OriginReader): Unit = {
    val coordinates = for {
      row <- origin
      topic <- reader.text(row, Lineage.Topic)
      partition <- reader.int(row, Lineage.Partition)
      offset <- reader.long(row, Lineage.Offset)
    } yield (row, topic, partition, offset)
    (deadLetters, coordinates) match {
      case (Some(letters), Some((row, topic, partition, offset))) =>
        letters.raiseIfFailed()
        val raw = reader.struct(row, Lineage.Raw, Lineage.RawType.length)
        letters.send(
          Malformed(FailedRecords.Reason, s"${failure.function}: ${failure.error}"),
          raw.map(_.getBinary(0)).orNull,
          raw.map(_.getBinary(1)).orNull,
          raw.map(_.getArray(2)).orNull,
          UTF8String.fromString(topic),
          partition,
          offset,
          reader.long(row, Lineage.EventTime).getOrElse(0L))
      case _ =>
        val record = coordinates.map { case (_, topic, partition, offset) => s" on record $topic-$partition@$offset" }
        throw new FunctionFailedException(
          s"Python function ${failure.function} failed${record.getOrElse("")}: ${failure.error}\n${failure.traceback}")
    }
  }
}

object FailedRecords {
  val Reason = "python_error"
}
