package io.github.posenc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * One call, driven from its caller's thread.
 *
 * <p>gRPC runs all callbacks of a call in the call's executor. Here that executor is a queue, which
 * the caller's thread empties until the call is over:
 *
 * <pre>
 *   caller's thread                       gRPC's threads
 *   run(): takes a task off the queue  &lt;--  a response is there, the call may write, it is closed
 *          sends messages              --&gt;   send what was queued
 * </pre>
 *
 * So responses are parsed, and written into the caller's memory, in the caller's thread; this class
 * needs no lock; and a slow caller delays only its own call, by gRPC's flow control.
 */
final class Exchange {
  /** Returns the next message; null at the end. */
  interface Next {
    Outgoing next();
  }

  /** Reads the next response from the stream, to its end. */
  interface Take {
    void take(InputStream response) throws IOException;
  }

  /** The end of a call. `local` is set if this side ended it. */
  static final class Outcome {
    Status status;
    Metadata trailers;
    RuntimeException local;
    boolean silent; // patience ended the call; `local` has the error
    long sent;
    long answered;
  }

  private static final class Tasks extends LinkedBlockingQueue<Runnable> implements Executor {
    private static final long serialVersionUID = 1;

    @Override
    public void execute(Runnable task) {
      add(task);
    }
  }

  private final Tasks tasks = new Tasks();
  private final Outcome outcome = new Outcome();
  private final Take take;
  private ClientCall<Outgoing, Boolean> call;

  private Exchange(Take take) {
    this.take = take;
  }

  /**
   * Runs a call to its end.
   *
   * @param window most messages that are sent ahead of their responses
   * @param patience longest time without an event; null: until the deadline in `options`
   */
  static Outcome run(
      Channel channel,
      String method,
      MethodDescriptor.MethodType type,
      CallOptions options,
      Metadata headers,
      int window,
      Duration patience,
      Next next,
      Take take) {
    return new Exchange(take).run(channel, method, type, options, headers, window, patience, next);
  }

  private Outcome run(
      Channel channel,
      String method,
      MethodDescriptor.MethodType type,
      CallOptions options,
      Metadata headers,
      int window,
      Duration patience,
      Next next) {
    MethodDescriptor<Outgoing, Boolean> descriptor =
        MethodDescriptor.<Outgoing, Boolean>newBuilder(Outgoing.MARSHALLER, new Taker())
            .setType(type)
            .setFullMethodName(method)
            .build();
    call = channel.newCall(descriptor, options.withExecutor(tasks));
    call.start(new Listener(), headers);
    // One response arrives while another is processed; later ones wait at the server.
    call.request(2);
    // gRPC never reports that such a call may write: it buffers the message until it can.
    boolean only = type.clientSendsOneMessage();
    boolean more = true;
    boolean interrupted = false;
    while (outcome.status == null) {
      while (more && outcome.status == null && (only || mayWrite(window))) {
        more = write(next, only);
      }
      try {
        Runnable task = patience == null
            ? tasks.take()
            : tasks.poll(patience.toMillis(), TimeUnit.MILLISECONDS);
        if (task != null) {
          task.run();
        } else {
          outcome.silent = outcome.local == null;
          fail(PosencException.local(
              Status.Code.DEADLINE_EXCEEDED,
              "the stream stood still for " + patience.toMillis() / 1000.0 + " s after "
                  + outcome.answered + " responses",
              ""));
          more = false;
        }
      } catch (InterruptedException e) {
        interrupted = true;
        more = false;
        call.cancel("the calling thread was interrupted", e);
      }
    }
    if (interrupted) Thread.currentThread().interrupt();
    return outcome;
  }

  private boolean mayWrite(int window) {
    return outcome.sent - outcome.answered < window && call.isReady();
  }

  // Returns false if no message is left.
  private boolean write(Next next, boolean only) {
    try {
      Outgoing message = next.next();
      if (message != null) {
        outcome.sent++;
        call.sendMessage(message);
        if (!only) return true;
      }
      call.halfClose();
    } catch (RuntimeException e) {
      fail(e);
    }
    return false;
  }

  // The first error of this side ends the call.
  private void fail(RuntimeException error) {
    if (outcome.local == null) outcome.local = error;
    call.cancel("ended by this client", error);
  }

  private final class Taker implements MethodDescriptor.Marshaller<Boolean> {
    @Override
    public InputStream stream(Boolean value) {
      throw new UnsupportedOperationException("responses are only received");
    }

    @Override
    public Boolean parse(InputStream response) {
      if (outcome.local != null) return false;
      try {
        take.take(response);
      } catch (IOException e) {
        outcome.local = PosencException.local(
            Status.Code.INTERNAL, "the response cannot be read: " + e.getMessage(), "");
      } catch (RuntimeException e) {
        outcome.local = e;
      }
      return outcome.local == null;
    }
  }

  private final class Listener extends ClientCall.Listener<Boolean> {
    @Override
    public void onMessage(Boolean taken) {
      outcome.answered++;
      if (taken) {
        call.request(1);
      } else {
        call.cancel("ended by this client", outcome.local);
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      outcome.status = status;
      outcome.trailers = trailers;
    }
  }
}
