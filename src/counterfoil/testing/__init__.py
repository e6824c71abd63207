"""What others need to test their own stores, registers and adapters; no test runner in it."""
