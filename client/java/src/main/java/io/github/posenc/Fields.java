package io.github.posenc;

import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import java.util.Locale;
import java.util.Map;

/** Fills messages from maps: keys are the contract's field names, enum values may be short. */
final class Fields {
  private Fields() {}

  static void set(Message.Builder message, Map<?, ?> values, String path) {
    Descriptor type = message.getDescriptorForType();
    values.forEach((key, value) -> {
      String here = path + "." + key;
      FieldDescriptor field = type.findFieldByName(String.valueOf(key));
      if (field == null) throw PosencException.invalid(here, "there is no such field");
      if (value == null) return;
      try {
        if (!field.isRepeated()) {
          message.setField(field, valueOf(field, message, value, here));
          return;
        }
        for (Object element : (Iterable<?>) value) {
          message.addRepeatedField(field, valueOf(field, message, element, here));
        }
      } catch (ArithmeticException e) {
        throw PosencException.invalid(here, "is " + value + "; must fit 32 bits");
      } catch (ClassCastException e) {
        throw PosencException.invalid(here, "is a " + value.getClass().getSimpleName()
            + "; must be " + (field.isRepeated() ? "a list of " : "") + field.getJavaType());
      }
    });
  }

  private static Object valueOf(
      FieldDescriptor field, Message.Builder message, Object value, String path) {
    switch (field.getJavaType()) {
      case INT:
        return Math.toIntExact(whole(value, path));
      case LONG:
        return whole(value, path);
      case DOUBLE:
        return ((Number) value).doubleValue();
      case ENUM:
        return named(field, (String) value, path);
      case MESSAGE:
        Message.Builder inner = message.newBuilderForField(field);
        set(inner, (Map<?, ?>) value, path);
        return inner.build();
      default:
        return value; // strings and booleans; protobuf casts them
    }
  }

  private static long whole(Object value, String path) {
    double number = ((Number) value).doubleValue();
    if (number != Math.rint(number)) {
      throw PosencException.invalid(path, "is " + value + "; must be a whole number");
    }
    return ((Number) value).longValue();
  }

  // "half_split" is PAIRING_HALF_SPLIT: value 0 has the same prefix.
  private static EnumValueDescriptor named(FieldDescriptor field, String name, String path) {
    String zeroth = field.getEnumType().getValues().get(0).getName();
    String prefix = zeroth.substring(0, zeroth.length() - "UNSPECIFIED".length());
    String upper = name.toUpperCase(Locale.ROOT);
    EnumValueDescriptor value =
        field.getEnumType().findValueByName(upper.startsWith(prefix) ? upper : prefix + upper);
    if (value == null) {
      throw PosencException.invalid(
          path, "is \"" + name + "\"; must be one of " + field.getEnumType().getValues());
    }
    return value;
  }
}
