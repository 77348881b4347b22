"""Reading inputs: one module or package per format, each turning a source into table batches and issues."""
