"""One catalogue of what Spark, Java, Kafka and Python workers report, as errors in the user's words.

Checks before a start and failures after it take their sentences from here.
"""
