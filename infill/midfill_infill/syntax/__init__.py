"""What a document's tree says: functions, bodies, holes, errors. Knows captures, no engine."""
