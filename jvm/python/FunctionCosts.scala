package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}

import scala.collection.mutable

import org.apache.spark.util.AccumulatorV2

/** The cost of the calls of one function so far. */
private[tailrace] class FunctionCost extends Serializable {
  var rows = 0L
  var calls = 0L
  var mostRows = 0L
  var pythonNs = 0L
  var waitedNs = 0L
  var tripNs = 0L
  var failed = 0L
  var replaced = 0L

  def add(other: FunctionCost): Unit = {
    rows += other.rows
    calls += other.calls
    mostRows = math.max(mostRows, other.mostRows)
    pythonNs += other.pythonNs
    waitedNs += other.waitedNs
    tripNs += other.tripNs
    failed += other.failed
    replaced += other.replaced
  }

  /** The values in the order in which [[FunctionCost.of]] and Python (`engine/functions.py`) read them. */
  def values: Array[Long] = Array(rows, calls, mostRows, pythonNs, waitedNs, tripNs, failed, replaced)
}

private[tailrace] object FunctionCost {
  def of(values: Array[Long]): FunctionCost = {
    val cost = new FunctionCost
    cost.rows = values(0)
    cost.calls = values(1)
    cost.mostRows = values(2)
    cost.pythonNs = values(3)
    cost.waitedNs = values(4)
    cost.tripNs = values(5)
    cost.failed = values(6)
    cost.replaced = values(7)
    cost
  }
}

/**
 * The cost of each Python function of a query, by its name, summed over all tasks.
 *
 * Heartbeats read it while a task counts, so every access is synchronized.
 */
class FunctionCosts extends AccumulatorV2[String, ju.Map[String, Array[Long]]] {
  private val costs = mutable.LinkedHashMap.empty[String, FunctionCost]

  private[tailrace] def count(name: String)(change: FunctionCost => Unit): Unit = synchronized {
    change(costs.getOrElseUpdate(name, new FunctionCost))
  }

  private[tailrace] def names: Seq[String] = synchronized(costs.keys.toSeq)

  private[tailrace] def of(name: String): Option[FunctionCost] = synchronized(costs.get(name))

  override def add(name: String): Unit = count(name)(_ => ())

  override def isZero: Boolean = synchronized(costs.isEmpty)

  override def copy(): FunctionCosts = {
    val copied = new FunctionCosts
    copied.merge(this)
    copied
  }

  override def reset(): Unit = synchronized(costs.clear())

  override def merge(other: AccumulatorV2[String, ju.Map[String, Array[Long]]]): Unit = other match {
    case others: FunctionCosts =>
      // Read before this one is locked: two that merge each other would deadlock.
      val update = others.synchronized(others.costs.map { case (name, cost) =>
        val copied = new FunctionCost
        copied.add(cost)
        name -> copied
      }.toSeq)
      synchronized(update.foreach { case (name, cost) => count(name)(_.add(cost)) })
    case _ => throw new UnsupportedOperationException(s"cannot merge a ${other.getClass.getName}")
  }

  override def value: ju.Map[String, Array[Long]] = synchronized {
    val all = new ju.LinkedHashMap[String, Array[Long]]()
    costs.foreach { case (name, cost) => all.put(name, cost.values) }
    all
  }
}

private[tailrace] object FunctionCosts {

  /** The costs that a heartbeat reports. */
  def of(values: ju.Map[String, Array[Long]]): FunctionCosts = {
    val costs = new FunctionCosts
    values.forEach((name, numbers) => costs.count(name)(_.add(FunctionCost.of(numbers))))
    costs
  }
}
