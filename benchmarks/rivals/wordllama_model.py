"""Write the static model that the package wordllama has as model2vec reads it: `wordllama_model.py FOLDER`

It runs in an environment with wordllama (MIT; 16 MB of weights for the vocabulary of Llama 2), numpy and safetensors,
and imports nothing of wordllama.
"""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

from safetensors.numpy import load_file, save_file


def main() -> None:
    folder = Path(sys.argv[1])
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise SystemExit("wordllama_model: wordllama is not installed")
    package = Path(found.origin).parent
    (weights,) = load_file(package / "weights" / "l2_supercat_256.safetensors").values()
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"embeddings": weights.astype("float32")}, folder / "model.safetensors")
    shutil.copy(package / "tokenizers" / "l2_supercat_tokenizer_config.json", folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))


if __name__ == "__main__":
    main()
