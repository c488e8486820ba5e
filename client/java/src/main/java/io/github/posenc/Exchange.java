package io.github.posenc;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.Message;
import com.google.protobuf.UnsafeByteOperations;
import io.grpc.*;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * One call to the server. The caller's thread does all its work.
 *
 * <p>gRPC runs all callbacks of a call in the call's executor. Here the executor is a queue. The
 * caller's thread runs the tasks of this queue until the call is over. So the caller's thread
 * parses the responses and writes them into the caller's memory, and this class needs no lock. A
 * slow caller delays only its own call. gRPC's flow control then stops the server, and so limits
 * the memory.
 */
final class Exchange<M extends Message> extends ClientCall.Listener<InputStream> {
  // Both directions are streams of bytes: Outgoing writes requests, and parse() reads responses.
  private static final MethodDescriptor.Marshaller<InputStream> STREAMS =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(InputStream message) {
          return message;
        }

        @Override
        public InputStream parse(InputStream message) {
          return message;
        }
      };

  private final BlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
  private final ClientCall<InputStream, InputStream> call;
  private final MethodDescriptor.MethodType type;
  private final M prototype;
  private final Consumer<M> take;
  private M last;
  private long answers;
  private RuntimeException failure; // the error with which this client ended the call
  private Status status; // null until the call is over
  private Metadata trailers;

  /**
   * Makes a request, which run() sends.
   *
   * @param take gets each answer; the bytes in its fields are not copied, and are valid only until
   *     `take` returns. Null: the bytes are copied
   */
  Exchange(Channel channel, String method, MethodDescriptor.MethodType type, CallOptions options,
      M prototype, Consumer<M> take) {
    this.type = type;
    this.prototype = prototype;
    this.take = take;
    this.call =
        channel.newCall(MethodDescriptor.newBuilder(STREAMS, STREAMS)
                            .setType(type)
                            .setFullMethodName("posenc.v1.PositionalEncodingService/" + method)
                            .build(),
            options.withExecutor(tasks::add));
  }

  /**
   * Runs the call to its end, and returns the last answer.
   *
   * @param patienceMillis longest time without an event
   * @throws StatusRuntimeException if the server or gRPC ended the call
   * @throws RuntimeException if `take` threw it, which ended the call
   */
  M run(Metadata headers, long patienceMillis, Iterator<Outgoing> messages) {
    call.start(this, headers);
    call.request(2); // one response arrives while another is processed
    boolean open = true;
    boolean interrupted = false;
    while (status == null) {
      try {
        // gRPC never reports a call with one message as ready, because it buffers the message.
        while (open && failure == null && (type.clientSendsOneMessage() || call.isReady())) {
          open = messages.hasNext();
          if (open) {
            call.sendMessage(messages.next());
          } else {
            call.halfClose();
          }
        }
        Runnable task = tasks.poll(patienceMillis, TimeUnit.MILLISECONDS);
        if (task == null) {
          String text = "the stream stood still for " + patienceMillis / 1000.0 + " s after "
              + answers + " responses";
          throw Status.DEADLINE_EXCEEDED.withDescription(text).asRuntimeException();
        }
        task.run();
      } catch (InterruptedException e) {
        interrupted = true;
        String text = "the calling thread was interrupted";
        end(Status.CANCELLED.withDescription(text).asRuntimeException());
      } catch (RuntimeException e) {
        end(e);
      }
    }
    if (interrupted) Thread.currentThread().interrupt();
    if (failure != null) throw failure;
    if (!status.isOk()) throw status.asRuntimeException(trailers);
    if (last != null || !type.serverSendsOneMessage()) return last;
    throw PosencException.local(Status.Code.INTERNAL, "the answer is missing");
  }

  // Ends the call with an error of this client. run() throws the first of these errors.
  private void end(RuntimeException error) {
    if (failure == null) failure = error;
    call.cancel("ended by this client", error);
  }

  @Override
  public void onMessage(InputStream answer) {
    if (failure != null) return;
    try {
      answers++;
      last = parse(answer);
      if (take != null) take.accept(last);
      call.request(1);
    } catch (IOException e) {
      end(PosencException.local(
          Status.Code.INTERNAL, "the answer cannot be read: " + e.getMessage()));
    } catch (RuntimeException e) {
      end(e);
    }
  }

  @Override
  public void onClose(Status closed, Metadata closing) {
    status = closed;
    trailers = closing;
  }

  // Parses the message in gRPC's memory, without a copy. `in` owns this memory until it is closed.
  @SuppressWarnings("unchecked")
  private M parse(InputStream in) throws IOException {
    ByteString all;
    if (in instanceof HasByteBuffer && ((HasByteBuffer) in).byteBufferSupported()
        && in.markSupported()) {
      in.mark(Integer.MAX_VALUE); // without a mark, skip() would free the skipped memory
      List<ByteString> pieces = new ArrayList<>();
      ByteBuffer piece = ((HasByteBuffer) in).getByteBuffer();
      for (; piece != null; piece = ((HasByteBuffer) in).getByteBuffer()) {
        pieces.add(UnsafeByteOperations.unsafeWrap(piece));
        in.skip(piece.remaining());
      }
      all = ByteString.copyFrom(pieces); // joins the pieces without a copy
    } else {
      all = ByteString.readFrom(in);
    }
    CodedInputStream coded = all.newCodedInput();
    coded.enableAliasing(take != null);
    return (M) prototype.getParserForType().parseFrom(coded);
  }
}
