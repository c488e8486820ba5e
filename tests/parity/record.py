"""A record of transformers' answers: gzipped lines of JSON.

The first line has the versions. Then, in any order:
  {"f": "<base64 of float32>"}          frequencies; their number is the line's
                                        rank among lines of this kind, from 0
  {"g": group, "t": model type, "s": spelling or damage, "c": configuration,
   "a": [{"f": number, "scale": ..., "type": layer type, "index": a layer of
          it, or the layer where there is no type, "sections": [...], "pairing": "half" or "interleaved",
          "length": that of the training}]}   transformers' answers, or
  {..., "e": error}                     the error that transformers raised
"""

import base64
import gzip
import json
import struct


class Writer:
    def __init__(self, path, **versions):
        self._file = gzip.GzipFile(path, "wb", 9, mtime=0)
        self._numbers = {}
        self._line(versions)

    def _line(self, values):
        text = json.dumps(values, separators=(",", ":"), sort_keys=True)
        self._file.write(text.encode() + b"\n")

    def _frequencies(self, values):
        packed = struct.pack(f"<{len(values)}f", *values)
        if packed not in self._numbers:
            self._numbers[packed] = len(self._numbers)
            self._line({"f": base64.b64encode(packed).decode()})
        return self._numbers[packed]

    def add(self, group, model_type, name, text, answers=None, error=None):
        """`text` is the configuration's JSON, which may be malformed."""
        line = {"g": group, "t": model_type, "s": name, "c": text}
        if error is not None:
            line["e"] = error
        else:
            line["a"] = []
            for answer in answers:
                kept = {key: value for key, value in answer.items()
                        if value is not None and key != "inv_freq"}
                kept["f"] = self._frequencies(answer["inv_freq"])
                line["a"].append(kept)
        self._line(line)

    def close(self):
        self._file.close()
