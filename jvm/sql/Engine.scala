package org.apache.spark.sql.tailrace

import java.util.Properties

/** The version of this jar. The Python package checks it before any other call. */
object Engine {

  private lazy val properties: Properties = {
    val loaded = new Properties()
    val resource = getClass.getResourceAsStream("/tailrace-engine.properties")
    if (resource != null) try loaded.load(resource) finally resource.close()
    loaded
  }

  /** The Tailrace version that this jar was built for. */
  def version: String = properties.getProperty("version", "unknown")
}
