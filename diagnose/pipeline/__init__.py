"""The one recipe: sources to facts to analyses to a published run store."""
