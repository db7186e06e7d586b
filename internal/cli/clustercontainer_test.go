package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// TestClusterContainers runs two points at once in containers of one image, which one of them
// imports. What stands for apptainer keeps its command lines, makes an image slowly, and runs the
// command on the node itself.
func TestClusterContainers(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	bin, cache := filepath.Join(c.dir, "bin"), filepath.Join(c.dir, "images")
	if err := os.Mkdir(bin, 0o777); err != nil {
		t.Fatal(err)
	}
	fake := `#!/bin/sh
echo "$*" >>` + c.dir + `/calls
case $1 in
pull) echo half >"$2"; sleep 1; echo whole >>"$2" ;;
exec)
  shift
  while :; do
    case $1 in
    --writable-tmpfs | --nv | --rocm) shift ;;
    --pwd) cd "$2" || exit 1; shift 2 ;;
    --*) shift 2 ;;
    *) break ;;
    esac
  done
  grep -q whole "$1" || { echo "the image is not whole"; exit 1; }
  shift
  exec "$@"
  ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "apptainer"), []byte(fake), 0o777); err != nil {
		t.Fatal(err)
	}
	c.bin = bin + ":"
	s := c.sweep("boxed", " }\n    container: { runtime: apptainer, cache: "+cache, map[string]string{"glm": "@1, 2"})
	s.run(0)
	s.want(map[string]string{"glm@1": "COMPLETE", "glm@2": "COMPLETE"})
	c.idle()
	raw, err := os.ReadFile(filepath.Join(c.dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	calls := string(raw)
	if n := strings.Count(calls, "pull "); n != 1 {
		t.Errorf("%d imports:\n%s", n, calls)
	}
	if n := strings.Count(calls, "exec --writable-tmpfs --bind "); n != 2+s.retries() || strings.Count(calls, "/unified-0 "+cache+"/lmsysorg_sglang_v0.5.16-cu130-") != n {
		t.Errorf("containers:\n%s", calls)
	}
}
