package org.apache.spark.sql.execution.python.tailrace

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.tailrace.{DeadLetters, Lineage, Malformed, OutputIds}
import org.apache.spark.unsafe.types.UTF8String

/** A Python function failed on a record, and the pipeline's error policy is to fail. */
class FunctionFailedException(message: String) extends RuntimeException(message)

/** The failure of a function on a row. */
private[tailrace] case class Failure(function: String, error: String, traceback: String)

private[tailrace] object Failure {
  private implicit val formats: Formats = DefaultFormats

  def read(json: String): Failure = parse(json).extract[Failure]
}

/** The error policy for records on which a Python function fails: write a dead letter, or fail the query. */
case class FailedRecords(deadLetters: Option[DeadLetters]) {

  /** Apply the policy to a failure on a row of this origin; `ids` names the dead letters of the operator. */
  private[tailrace] def handle(
      failure: Failure,
      origin: Option[InternalRow],
      reader: RecordOriginReader,
      ids: OutputIds): Unit = {
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
          reader.long(row, Lineage.EventTime).getOrElse(0L),
          reader.int(row, Lineage.Source).getOrElse(0),
          ids)
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
