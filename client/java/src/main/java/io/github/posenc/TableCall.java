package io.github.posenc;

import io.github.posenc.v1.*;
import io.grpc.CallOptions;
import java.util.*;
import java.util.concurrent.CancellationException;
import java.util.function.Consumer;

/** A call for a whole table, which comes in one message or, if that is too large, as a stream. */
final class TableCall {
  private final Calls calls;
  private final CallOptions options;
  private final BuildTableRequest request;
  private final boolean complex;
  private final List<String> fields; // of its tensors

  TableCall(Calls calls, CallOptions options, BuildTableRequest request) {
    this.calls = calls;
    this.options = options;
    this.request = request;
    this.complex = request.getLayout() == TableLayout.TABLE_LAYOUT_COMPLEX;
    this.fields = complex || !request.hasRope() ? List.of("table") : List.of("cos", "sin");
  }

  Table run(TensorView... out) {
    TensorCall<BuildTableResponse> call = new TensorCall<>(
        calls, options, "BuildTable", request, BuildTableResponse.getDefaultInstance(), out);
    BuildTableStreamResponse known = call.hasPlaces() ? firstRow() : null;
    for (String field : fields) {
      if (known == null) {
        call.result(field, null, null);
      } else {
        long[] shape = TensorView.shapeOf(known.getWholeShapeList());
        call.result(field, TensorCall.tensorOf(known, field).getDtype(), shape);
      }
    }
    try {
      double amplitude = call.run().getAmplitude();
      return new Table(amplitude, 0, call.result("cos"), call.result("sin"), call.result("table"));
    } catch (PosencException e) {
      if (!e.isTooLarge()) throw e;
    }
    Map<String, Whole> wholes = new HashMap<>();
    for (String field : fields) {
      wholes.put(field, new Whole(field, complex ? 3 : 2, fields.size(), call.result(field)));
    }
    double[] amplitude = {0};
    stream(0, part -> {
      amplitude[0] = part.getAmplitude();
      wholes.forEach((field, whole)
                         -> whole.put(part.getWholeShapeList(), TensorCall.tensorOf(part, field),
                             part.getFirstRow(), 0));
    });
    Map<String, TensorView> tensors = new HashMap<>();
    wholes.forEach((field, whole) -> tensors.put(field, whole.get()));
    return new Table(amplitude[0], 0, tensors.get("cos"), tensors.get("sin"), tensors.get("table"));
  }

  // Asks for one row, which tells type and shape of the whole: the server writes a whole table to a
  // place, even if that is smaller.
  private BuildTableStreamResponse firstRow() {
    BuildTableStreamResponse[] first = {null};
    try {
      stream(1, part -> {
        first[0] = part; // its bytes are gone after this
        throw new CancellationException();
      });
    } catch (CancellationException e) {
      // The first row is enough.
    }
    return first[0];
  }

  private void stream(long rowsPerMessage, Consumer<BuildTableStreamResponse> take) {
    BuildTableStreamRequest.Builder stream = BuildTableStreamRequest.newBuilder();
    stream.setTable(request).setRowsPerMessage(rowsPerMessage);
    try {
      calls.receive(options, "BuildTableStream", stream.build(),
          BuildTableStreamResponse.getDefaultInstance(), take);
    } catch (PosencException e) {
      throw e.ofTable(); // callers do not know the stream's message
    }
  }
}
