"""The dialogs: what a person fills in or reads above the monitor. Each returns its answer and touches no engine."""
