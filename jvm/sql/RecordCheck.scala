package org.apache.spark.sql.tailrace

import scala.util.control.NonFatal

import com.fasterxml.jackson.core.JacksonException
import com.fasterxml.jackson.core.exc.InputCoercionException

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.expressions.json.JsonToStructsEvaluator
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

/** A record could not be read, and the pipeline's policy for malformed records is to fail. */
class RecordMalformedException(message: String) extends RuntimeException(message)

/** Why a record is malformed: a reason code and a message. */
case class Malformed(reason: String, error: String)

/**
 * Parses a record's bytes into columns, or applies the policy for malformed records.
 *
 * Each task has its own copy, and one thread calls it.
 *
 * @param source the number of the source in the pipeline
 * @param isRepeated whether another check counts the same records and reports the malformed ones
 */
case class RecordCheck(
    format: String,
    schema: StructType,
    jsonOptions: Map[String, String],
    timeZone: String,
    failing: Boolean,
    deadLetters: Option[DeadLetters],
    source: Int,
    counts: RecordCounts,
    isRepeated: Boolean = false)(@transient val killed: KilledTaskCounts) {

  /** The check of another read of the same source. */
  def repeated: RecordCheck = copy(isRepeated = true)(killed)

  /** The schema of a good record: columns are nullable as the user declares them, nested fields always. */
  def content: StructType = StructType(schema.map(field => field.copy(dataType = field.dataType.asNullable)))

  override def toString: String = s"RecordCheck($format)"

  private val required: Array[Int] = schema.fields.zipWithIndex.collect { case (field, index) if !field.nullable => index }

  // FAILFAST: Spark's parser throws an exception with the reason instead of returning a row of nulls.
  @transient private lazy val json =
    JsonToStructsEvaluator(
      jsonOptions + ("mode" -> "FAILFAST"), schema.asNullable, "", Some(timeZone), variantAllowDuplicateKeys = false)

  @transient private lazy val ids = new OutputIds(OutputIds.Malformed)

  /** Whether to check what follows the object. Not if comments are allowed, because they may contain braces. */
  private val checksEnd = !jsonOptions.exists { case (name, _) => name.equalsIgnoreCase("allowComments") }

  def accept(
      value: Array[Byte],
      key: Array[Byte],
      headers: ArrayData,
      topic: UTF8String,
      partition: Int,
      offset: Long,
      timestampMicros: Long): InternalRow = {
    deadLetters.foreach(_.raiseIfFailed())
    val parsed = read(value)
    parsed match {
      case Right(row) =>
        if (!isRepeated) counts.accept()
        row
      case Left(malformed) =>
        if (failing) {
          throw new RecordMalformedException(
            s"record $topic-$partition@$offset is malformed: ${malformed.reason}: ${malformed.error}")
        }
        if (!isRepeated) {
          deadLetters.foreach(_.send(malformed, value, key, headers, topic, partition, offset, timestampMicros, source, ids))
          counts.refuse(malformed.reason)
        }
        null
    }
  }

  private def read(value: Array[Byte]): Either[Malformed, InternalRow] = format match {
    case "bytes" => Right(new GenericInternalRow(Array[Any](value)))
    case "string" => text(value).map(line => new GenericInternalRow(Array[Any](line)))
    case _ =>
      if (value == null) Left(Malformed("null_value", "the record has no value, so no JSON in it"))
      else text(value).flatMap(parse)
  }

  private def text(value: Array[Byte]): Either[Malformed, UTF8String] =
    if (value == null) {
      Right(null)
    } else {
      val line = UTF8String.fromBytes(value)
      if (line.isValid) Right(line) else Left(Malformed("not_utf8", "its bytes are not UTF-8 text"))
    }

  private def parse(line: UTF8String): Either[Malformed, InternalRow] =
    try {
      val row = json.evaluate(line).asInstanceOf[InternalRow]
      if (row == null) Left(Malformed("not_an_object", "its JSON is not an object"))
      else if (checksEnd && JsonEnd.hasMore(line)) Left(Malformed("not_json", "there is more after the end of its JSON object"))
      else complete(row)
    } catch {
      case NonFatal(refused) => Left(explain(line, refused))
    }

  private def explain(line: UTF8String, refused: Throwable): Malformed =
    if (RecordCheck.causes(refused).exists(RecordCheck.isSyntax)) {
      Malformed("not_json", RecordCheck.innermost(refused))
    } else if (!line.trim.startsWith(RecordCheck.Brace)) {
      Malformed("not_an_object", "its JSON is not an object")
    } else {
      Malformed("wrong_type", RecordCheck.innermost(refused))
    }

  private def complete(row: InternalRow): Either[Malformed, InternalRow] = {
    var index = 0
    while (index < required.length) {
      if (row.isNullAt(required(index))) {
        return Left(Malformed("missing_column", s"column ${schema.fields(required(index)).name} is null or missing"))
      }
      index += 1
    }
    Right(row)
  }
}

object RecordCheck {
  private val Brace = UTF8String.fromString("{")

  /** Whether the JSON is invalid. A number out of its column's range is not, though Jackson throws for it, too. */
  private def isSyntax(cause: Throwable): Boolean =
    cause.isInstanceOf[JacksonException] && !cause.isInstanceOf[InputCoercionException]

  private def causes(thrown: Throwable): Seq[Throwable] =
    Iterator.iterate(thrown)(_.getCause).takeWhile(_ != null).take(20).toSeq

  /** The first line of the innermost message. */
  private def innermost(thrown: Throwable): String = {
    val messages = causes(thrown).map(_.getMessage).filter(text => text != null && text.trim.nonEmpty)
    val line = messages.lastOption.getOrElse(thrown.getClass.getSimpleName).trim.linesIterator.next()
    line.replaceFirst("^\\[[A-Z_.]+\\] ", "").replaceFirst(" SQLSTATE: \\w+$", "").take(500)
  }
}
