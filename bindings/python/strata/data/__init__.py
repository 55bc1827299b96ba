"""Making text ready for training: ``python -m strata.data.convert`` (Parquet and Arrow)."""
