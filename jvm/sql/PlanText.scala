package org.apache.spark.sql.tailrace

import java.security.MessageDigest
import java.util.UUID
import java.util.concurrent.atomic.AtomicReference

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.reflect.{classTag, ClassTag}

import net.razorvine.pickle.{Pickler, Unpickler}

import org.apache.spark.api.python.{PythonFunction, PythonRDD}
import org.apache.spark.rdd.{ParallelCollectionRDD, RDD}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.LogicalRDD
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation, PartitioningAwareFileIndex}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, FileTable}
import org.apache.spark.sql.types.{DataType, Metadata, ObjectType}
import org.apache.spark.unsafe.types.CalendarInterval

/**
 * Writes an analysed plan as text that is the same in every process, and different if anything differs that decides what the
 * plan returns.
 *
 * Spark's own texts contain the ids of expressions, which differ in each process, and its canonical form orders operands by
 * hash codes. Names of aliases of tables, hints and the seeds of random functions are left out. Python functions are only
 * numbered: their code is compared in Python.
 *
 * @param sourceOf the number of the source whose rows a plan returns
 */
private[tailrace] class PlanText(sourceOf: LogicalPlan => Option[Int]) {
  private val out = new StringBuilder
  private val numbers = mutable.HashMap.empty[ExprId, Int]
  private val called = mutable.ArrayBuffer.empty[(String, PythonFunction)]
  private var unknown: Option[String] = None

  def text: String = out.toString

  /** The Python functions by their numbers, with their names. */
  def functions: Seq[(String, PythonFunction)] = called.toSeq

  /** The first part that cannot be written as text, in words. */
  def unstable: Option[String] = unknown

  def add(plan: LogicalPlan): Unit = sourceOf(plan) match {
    case Some(number) =>
      line(s"source $number", plan.output)
    case None =>
      plan match {
        case SubqueryAlias(_, child) => add(child)
        case view: View => add(view.child)
        case hint: ResolvedHint => add(hint.child)
        case metrics: CollectMetrics => add(metrics.child)
        case leaf: LeafNode => addLeaf(leaf)
        case node =>
          // Children come first, so that their columns are numbered from the sources on.
          node.children.foreach(add)
          line(node.nodeName, node.productIterator.filterNot(_.isInstanceOf[LogicalPlan]).toSeq)
      }
  }

  private def line(name: String, values: Iterable[Any]): Unit = {
    out ++= name
    values.foreach { value =>
      out += ' '
      write(value)
    }
    out += '\n'
  }

  private def addLeaf(leaf: LeafNode): Unit = leaf match {
    case LocalRelation(output, rows, false, _) => line("rows", output :+ digestOf(output.map(_.dataType), rows))
    case LogicalRelation(files: HadoopFsRelation, output, _, false, _) =>
      val listed = files.location match {
        case index: PartitioningAwareFileIndex => listing(index)
        case _ => refuse("a table whose files Spark does not list"); Nil
      }
      line("files", output ++ Seq(files.fileFormat.getClass.getName, files.options, listed))
    case DataSourceV2Relation(table: FileTable, output, _, _, options, _) =>
      line("files", output ++ Seq(table.getClass.getName, options, listing(table.fileIndex)))
    case table: LogicalRDD if !table.isStreaming => line("local rows", table.output ++ rowsOf(table.rdd))
    case _: Range | _: OneRowRelation => line(leaf.nodeName, leaf.productIterator.toSeq)
    case other => refuse(s"a table of ${other.nodeName}, which may change unnoticed,")
  }

  private def listing(index: PartitioningAwareFileIndex): Seq[Any] =
    index.allFiles().map(file => (file.getPath.toString, file.getLen, file.getModificationTime))

  private def write(value: Any): Unit = value match {
    case null => out ++= "null"
    case plan: LogicalPlan => out += '{'; add(plan); out += '}'
    case expression: Expression => writeExpression(expression)
    case id: ExprId => writeNumber(id)
    case kind: DataType => out ++= kind.json
    case metadata: Metadata => out ++= metadata.json
    case text: String => out ++= s"${text.length}:$text"
    case _: UUID | _: AtomicReference[_] | _: JoinHint => // chosen at random, changed by each call, or without effect on rows
    case map: scala.collection.Map[_, _] => writeSorted(map)
    case map: java.util.Map[_, _] => write(map.asScala)
    case set: scala.collection.Set[_] => writeSorted(set)
    case values: Iterable[_] => writeAll("", values.iterator)
    case values: Array[_] => writeAll("", values.iterator)
    case product: Product => writeAll(product.productPrefix, product.productIterator)
    case kind: Class[_] => out ++= kind.getName
    case _: java.lang.Number | _: java.lang.Boolean | _: java.lang.Character | _: java.lang.Enum[_] | _: CalendarInterval |
        _: Enumeration#Value =>
      out ++= value.toString
    case single if single.getClass.getName.endsWith("$") => out ++= single.getClass.getName
    case other => refuse(s"a ${other.getClass.getSimpleName} in the plan")
  }

  private def writeExpression(expression: Expression): Unit = expression match {
    case column: AttributeReference =>
      // Its name and type count only where it first appears; the names of the result are those of aliases or sources.
      val isNew = !numbers.contains(column.exprId)
      writeNumber(column.exprId)
      if (isNew) writeAll(column.name, Iterator(column.dataType, column.nullable, column.metadata))
    case alias: Alias =>
      writeNumber(alias.exprId)
      // The name that Spark makes of a random function contains its seed.
      val name = if (alias.child.exists(_.isInstanceOf[ExpressionWithRandomSeed])) "" else alias.name
      writeAll("alias", Iterator(name, alias.metadata, alias.child))
    case variable: NamedLambdaVariable =>
      writeNumber(variable.exprId)
      writeAll("variable", Iterator(variable.dataType, variable.nullable))
    case udf: PythonUDF =>
      writeAll("python", Iterator(numberOf(udf.name, udf.func), udf.evalType, udf.dataType, udf.udfDeterministic, udf.children))
    case Literal(_, _: ObjectType) => refuse("an object of the JVM in the plan")
    case literal: Literal => out ++= s"${literal.dataType.json} ${literal.sql}"
    case random: ExpressionWithRandomSeed =>
      writeAll(random.getClass.getSimpleName, random.children.iterator.filterNot(_ eq random.seedExpression))
    case function: ScalaUDF => refuse(s"the JVM function ${function.udfName.getOrElse("without a name")}")
    case product => writeAll(product.getClass.getSimpleName, product.productIterator)
  }

  private def writeAll(name: String, values: Iterator[Any]): Unit = {
    out ++= name += '('
    values.foreach { value =>
      write(value)
      out += ','
    }
    out += ')'
  }

  private def writeSorted(values: Iterable[_]): Unit = writeAll("", values.toSeq.map(written).sorted.iterator)

  private def written(value: Any): String = {
    val start = out.length
    write(value)
    val text = out.substring(start)
    out.setLength(start)
    text
  }

  private def writeNumber(id: ExprId): Unit = out ++= s"#${numbers.getOrElseUpdate(id, numbers.size)}"

  private def refuse(what: String): Unit = if (unknown.isEmpty) unknown = Some(what)

  private def digestOf(types: Seq[DataType], rows: Seq[InternalRow]): String = {
    val digest = MessageDigest.getInstance("SHA-256")
    // Interpreted: to compile generated code takes longer than the few rows of a table in a program.
    val columns = types.zipWithIndex.map { case (kind, at) => BoundReference(at, kind, nullable = true) }
    val project = InterpretedUnsafeProjection.createProjection(columns)
    rows.foreach(row => digest.update(project(row).getBytes))
    hex(digest)
  }

  /** The rows that a program gave to Spark: pickled data at the beginning of a chain of RDDs, and functions over them. */
  private def rowsOf(rows: RDD[_]): Seq[Any] = {
    val parts = mutable.ArrayBuffer.empty[Any]
    def follow(rdd: RDD[_]): Unit = {
      rdd match {
        case local: ParallelCollectionRDD[_] =>
          parts += digestOf(PlanText.field[ParallelCollectionRDD[_], scala.collection.Seq[Any]](local, "data"))
        case python: PythonRDD => parts += numberOf("a static table", PlanText.field[PythonRDD, PythonFunction](python, "func"))
        case other if other.dependencies.isEmpty => refuse(s"a table made of a ${other.getClass.getSimpleName}")
        case _ =>
      }
      rdd.dependencies.foreach(each => follow(each.rdd))
    }
    follow(rows)
    parts.toSeq
  }

  /** The digest of pickled rows. They are pickled again as one list: how many PySpark puts into each depends on the cores. */
  private def digestOf(batches: scala.collection.Seq[Any]): String = {
    val rows = new java.util.ArrayList[Any]
    batches.foreach {
      case bytes: Array[Byte] =>
        new Unpickler().loads(bytes) match {
          case several: java.util.Collection[_] => rows.addAll(several)
          case one => rows.add(one)
        }
      case other => refuse(s"a table made of ${other.getClass.getSimpleName} objects")
    }
    val digest = MessageDigest.getInstance("SHA-256")
    digest.update(new Pickler().dumps(rows))
    hex(digest)
  }

  private def numberOf(name: String, function: PythonFunction): Int = {
    val known = called.indexWhere(_._2 eq function)
    if (known < 0) called += name -> function
    if (known < 0) called.size - 1 else known
  }

  private def hex(digest: MessageDigest): String = digest.digest().map(byte => f"$byte%02x").mkString
}

private[tailrace] object PlanText {

  /** The value of a private field, whose name the compiler may have lengthened. */
  private def field[Holder: ClassTag, Value](holder: Holder, name: String): Value = {
    val found = classTag[Holder].runtimeClass.getDeclaredFields.find(_.getName.endsWith(name))
    val known = found.getOrElse(throw new IllegalStateException(s"Spark's ${classTag[Holder]} has no field $name"))
    known.setAccessible(true)
    known.get(holder).asInstanceOf[Value]
  }
}
