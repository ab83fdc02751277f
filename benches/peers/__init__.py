"""The same workload, driven through other frameworks and through tower-chat."""
