"""Problems of a query, found before it starts. Needs no Spark and no Kafka client."""
