"""Order statistics of samples, exact: counts of keys, cell by cell, and the counts that prove what they gave."""
