# SPDX-License-Identifier: MIT
"""In: recordings of many hosts. Out: one folder of Parquet tables, and what they tell of all hosts
together, as queries that run on DuckDB and on Spark unchanged.
"""
