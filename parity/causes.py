def likely_cause(*a): return ""
