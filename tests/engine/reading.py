"""What an engine or a manager gave: records, acknowledgements, outputs."""


def records_of(engine, after=0):
    records, missed = engine.tap.read(after)
    assert not missed
    return records


def acks_of(engine):
    return [ack for record in records_of(engine) for ack in record.commands]


def outputs_by_id(engine):
    return {output.request_id: output for output in engine.take_outputs() if output.is_finished()}


def finals(manager):
    return {output.request_id: output for output in manager if output.is_finished()}
