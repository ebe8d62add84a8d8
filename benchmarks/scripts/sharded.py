"""A small job for Spark: three passes over eight shards of numbers."""

from operator import add

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
numbers = spark.sparkContext.parallelize(range(800_000), 8)
for divisor in (3, 5, 7):
    print(divisor, numbers.map(lambda number, divisor=divisor: number % divisor).treeReduce(add), flush=True)
spark.stop()
