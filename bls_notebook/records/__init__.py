"""Records: frozen plain data. Nothing here draws or runs a model."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "advice": "advised nearest",
    "base": "plain Printable Record",
    "devices": "DeviceRecord DeviceTable",
    "errors": "BLSError ErrorRecord FileError FrameRecord",
    "grouping": "grouped",
    "measurements": "NONE quartiles Quartiles",
    "messages": "MessageRecord",
    "metrics": "FamilyRecord MetricRecord",
    "models": "Change ModelRecord TensorSpecRecord",
    "record_file": "ending_of json_of read_bytes RecordFile told write_file",
    "recorded_models": "ModelSeen RecordedInstance Stubbed TensorSeen went_through",
    "regular_file": "MAX_CODE MAX_CONFIG MAX_SOURCE open_file read_file source_text",
    "responses": "Figures Media ResponseRecord TensorRecord TextSeen",
    "script_messages": "shells",
    "statistics": "statistics_record StatisticsRecord Times why_not_batched",
    "tensor_preview": "ITEM_BYTES preview tensor_record",
    "units": "bytes_in count duration listed ns percent quantity shape size some_ns",
    "visible_text": "encodable first_line shortened spoken visible without_traceback",
})  # fmt: skip
