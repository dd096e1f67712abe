package org.apache.spark.sql.tailrace

import org.apache.spark.unsafe.types.UTF8String

/** Checks what follows a JSON object. Spark's parser stops at its end, so a second object would be lost silently. */
object JsonEnd {

  /** Whether anything but white space follows the first object of a line. The line must be valid JSON. */
  def hasMore(line: UTF8String): Boolean = {
    val length = line.numBytes()
    var index = 0
    var depth = 0
    var quote = 0
    var ended = false
    while (index < length) {
      val byte = line.getByte(index)
      if (ended) {
        if (!isBlank(byte)) return true
      } else if (quote != 0) {
        if (byte == '\\') index += 1
        else if (byte == quote) quote = 0
      } else {
        byte match {
          case '"' | '\'' => quote = byte
          case '{' | '[' => depth += 1
          case '}' | ']' =>
            depth -= 1
            ended = depth == 0
          case _ =>
        }
      }
      index += 1
    }
    false
  }

  private def isBlank(byte: Byte): Boolean = byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'
}
