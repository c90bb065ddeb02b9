import com.sun.source.util.JavacTask;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringWriter;
import java.net.URI;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticListener;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

/** Reads source files, one line of base64 each, and writes 1 where javac's parser has no complaint, else 0. */
public class JavaSyntax {
  private static final Set<String> MEANING =
      Set.of("compiler.err.invalid.meth.decl.ret.type.req", "compiler.err.repeated.modifier");

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line; (line = lines.readLine()) != null; ) {
      System.out.println(parses(new String(Base64.getDecoder().decode(line), "UTF-8")) ? "1" : "0");
      System.out.flush();
    }
  }

  private static boolean parses(String text) {
    boolean[] wrong = {false};
    DiagnosticListener<JavaFileObject> listener =
        d -> wrong[0] |= d.getKind() == Diagnostic.Kind.ERROR && !MEANING.contains(d.getCode());
    JavaFileObject file =
        new SimpleJavaFileObject(URI.create("string:///A.java"), JavaFileObject.Kind.SOURCE) {
          @Override
          public CharSequence getCharContent(boolean ignored) {
            return text;
          }
        };
    List<String> options = List.of("-proc:none");
    try {
      ((JavacTask) ToolProvider.getSystemJavaCompiler().getTask(new StringWriter(), null, listener, options, null, List.of(file))).parse();
    } catch (Exception e) {
      return false;
    }
    return !wrong[0];
  }
}
