package io.github.posenc;

import io.github.posenc.v1.*;
import io.grpc.CallOptions;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.function.Consumer;

/** A call for a whole table. If the table is too large for one message, it comes as a stream. */
final class TableCall {
  private final Calls calls;
  private final CallOptions options;
  private final BuildTableRequest request;

  TableCall(Calls calls, CallOptions options, BuildTableRequest request) {
    this.calls = calls;
    this.options = options;
    this.request = request;
  }

  Table run(TensorView... out) {
    boolean complex = request.getLayout() == TableLayout.TABLE_LAYOUT_COMPLEX;
    List<String> fields = complex || !request.hasRope() ? List.of("table") : List.of("cos", "sin");
    TensorCall<BuildTableResponse> call = new TensorCall<>(
        calls, options, "BuildTable", request, BuildTableResponse.getDefaultInstance(), out);
    fields.forEach(call::result);
    double[] amplitude = {0};
    try {
      if (fields.stream().anyMatch(field -> call.result(field).isInRegion())) {
        expectRows(call, fields);
      }
      amplitude[0] = call.run().getAmplitude();
    } catch (PosencException e) {
      if (!e.isTooLarge()) throw e;
      stream(0, part -> {
        amplitude[0] = part.getAmplitude();
        for (String field : fields) {
          Tensor rows = TensorCall.tensorOf(part, field);
          List<Long> whole = part.getWholeShapeList();
          call.result(field).put(
              rows, whole, fields.size(), complex ? 3 : 2, part.getFirstRow(), 0);
        }
      });
      for (String field : fields) call.result(field).end();
    }
    return new Table(amplitude[0], 0, call.get("cos"), call.get("sin"), call.get("table"));
  }

  // Requests one row to learn the type and shape of the whole table, and compares them with the
  // outputs. Without this check, the server would write the whole table even to a smaller place.
  private void expectRows(TensorCall<?> call, List<String> fields) {
    try {
      stream(1, part -> {
        List<Long> whole = part.getWholeShapeList(); // empty if the server is older
        for (String field : whole.isEmpty() ? List.<String>of() : fields) {
          call.result(field).expect(TensorCall.tensorOf(part, field).getDtype(), whole);
        }
        throw new CancellationException();
      });
    } catch (CancellationException e) {
      // The first row is enough.
    }
  }

  private void stream(long rowsPerMessage, Consumer<BuildTableStreamResponse> take) {
    BuildTableStreamRequest.Builder stream = BuildTableStreamRequest.newBuilder();
    stream.setTable(request).setRowsPerMessage(rowsPerMessage);
    try {
      calls.run(options, "BuildTableStream", stream.build(),
          BuildTableStreamResponse.getDefaultInstance(), take);
    } catch (PosencException e) {
      throw e.ofTable(); // callers know only the fields of the unary request
    }
  }
}
