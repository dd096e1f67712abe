package org.apache.spark.sql.tailrace

import java.util.Properties

/** Which engine this is: the Python half asks before it calls anything else. */
object Engine {

  private lazy val properties: Properties = {
    val read = new Properties()
    val resource = getClass.getResourceAsStream("/tailrace-engine.properties")
    if (resource != null) try read.load(resource) finally resource.close()
    read
  }

  /** The version of Tailrace that this jar was built for. */
  def version: String = properties.getProperty("version", "unknown")
}
